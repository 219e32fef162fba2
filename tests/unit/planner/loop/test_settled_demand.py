"""Zero, missing and several sources: what may take a replica away, and what may not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.errors import InputError
from data.fleet.types import Fleet, Placed
from planner.demand import DemandRow, DemandTable, demand_table
from planner.loop.settled_demand import combined, hold_running, settled

MakeDemand = Callable[..., DemandTable]
KEY = ("chat@v1", "interactive", "acme", "eu-1")
OTHER = ("big@v1", "interactive", "acme", "eu-1")


def median(table: DemandTable) -> float:
    return table.rows[0].median


def test_a_source_that_fails_is_unknown_and_the_other_one_may_raise_f115(need: MakeDemand) -> None:
    """F115, t1: one source is silent, the other one wants more: up, not down."""
    table = combined([None, need(1400.0)])
    assert table is not None
    assert median(table) == pytest.approx(1400.0)
    assert table.held_models() == {"chat@v1"}


def test_a_source_that_restarted_with_zeros_takes_nothing_away_f115(need: MakeDemand) -> None:
    """F115, t2: zeros right after a silence; t3 on: down only after two steps that know."""
    silent = combined([None, need(1400.0)])
    zeros = combined([need(0.0), need(1300.0)])
    low = combined([need(1200.0), need(1200.0)])
    assert silent is not None
    assert zeros is not None
    assert low is not None
    assert median(zeros) == pytest.approx(1300.0)
    after_silence = settled([silent, zeros], 2)
    assert after_silence.held_models() == {"chat@v1"}
    assert median(settled([zeros, low], 2)) == pytest.approx(1300.0)
    assert not settled([zeros, low], 2).missing
    assert median(settled([low, low], 2)) == pytest.approx(1200.0)


def test_no_traffic_scales_down_after_so_many_steps_f098(need: MakeDemand) -> None:
    """F098: a counter that stands still is a demand of 0, believed after the configured number of windows."""
    steps = [need(500.0), need(0.0), need(0.0), need(0.0)]
    seen = [median(settled(steps[: n + 1], 3)) for n in range(4)]
    assert seen == pytest.approx([500.0, 500.0, 500.0, 0.0])
    assert not settled(steps, 3).missing


def test_no_data_holds_f098(need: MakeDemand) -> None:
    """F098: an absent series holds the plan of its model."""
    assert settled([need(500.0), need(None)], 2).held_models() == {"chat@v1"}


def test_after_a_start_nothing_shrinks_until_demand_is_known_for_long_enough(need: MakeDemand) -> None:
    table = settled([need(10.0)], 2)
    assert table.held_models() == {"chat@v1"}
    assert "1 of 2 steps" in table.notes[-1]
    assert not settled([need(10.0)], 1).missing


def test_a_running_model_that_nobody_names_is_held_while_demand_is_not_settled(
    fleet: Fleet, need: MakeDemand
) -> None:
    empty = settled([demand_table([], [OTHER])], 1)
    held = hold_running(empty, fleet, [Placed("eu-1", "chat-h100", 2)])
    assert held.held_models() == {"big@v1", "chat@v1"}
    named = settled([need(1.0)], 1)
    assert hold_running(named, fleet, [Placed("eu-1", "chat-h100", 2)]) == named


def test_all_sources_silent_is_no_demand_at_all() -> None:
    assert combined([None, None]) is None
    with pytest.raises(InputError, match="no demand"):
        settled([], 2)


rates = st.floats(0, 1e6)
tables = st.lists(
    st.dictionaries(st.sampled_from([KEY, OTHER]), rates).map(
        lambda found: demand_table([DemandRow(*key, (rate,) * 4) for key, rate in found.items()])
    ),
    min_size=1,
    max_size=6,
)


@given(tables, st.integers(1, 5))
def test_settled_demand_is_never_below_any_of_its_steps(recent: list[DemandTable], steps: int) -> None:
    made = {row.key: row.median for row in settled(recent, steps).rows}
    for table in recent[-steps:]:
        for row in table.rows:
            assert made[row.key] >= row.median
    older = {row.key for table in recent[-steps:] for row in table.rows}
    assert set(made) == older


@given(tables)
def test_the_same_demand_again_and_again_is_itself(recent: list[DemandTable]) -> None:
    again = [recent[-1]] * 4
    assert settled(again, 3).rows == recent[-1].rows
    assert settled(again, 3).missing == recent[-1].missing
