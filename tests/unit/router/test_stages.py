"""Stages of endpoints: only forward before ready, anew with each incarnation, every second counted once (F105)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.errors import SettingError
from router.feeds.probe_settings import ProbeSettings
from router.feeds.stages import COMING, MOST_GONE, Stage, StageBook


@dataclass
class Clock:
    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_the_time_in_each_stage_is_told_f105() -> None:
    """F105: planned, loading, warming, ready, draining, gone, each with its seconds."""
    clock = Clock()
    book = StageBook(clock)
    book.begin("e")
    for seconds, step in (
        (1, lambda: book.came_to("e", Stage.LOADING, "connect")),
        (240, lambda: book.came_to("e", Stage.WARMING, "status")),
        (120, lambda: book.note("e", ready=True, draining=False)),
        (1000, lambda: book.note("e", ready=True, draining=True)),
        (30, lambda: book.left("e")),
        (7, lambda: None),
    ):
        clock.now_s += seconds
        step()
    ((name, life),) = book.gone
    assert (name, life.stage, book.left_in_all) == ("e", Stage.GONE, 1)
    told = {stage.value: seconds for stage, seconds in life.seconds(clock.now_s).items()}
    assert told == {"planned": 1, "loading": 240, "warming": 120, "ready": 1000, "draining": 30, "gone": 7}


def test_an_engine_that_answered_is_not_loading_any_more_f105() -> None:
    book = StageBook(Clock())
    book.begin("e")
    book.came_to("e", Stage.WARMING, "status")
    book.came_to("e", Stage.LOADING, "timeout")
    assert (book.lives["e"].stage, book.lives["e"].why) == (Stage.WARMING, "timeout")
    book.note("e", ready=True, draining=False)
    assert book.lives["e"].why == ""
    book.begin("e")
    assert book.lives["e"].stage is Stage.PLANNED


def test_a_drain_that_is_taken_back_leads_back_to_where_it_was() -> None:
    book = StageBook(Clock())
    book.begin("e")
    book.came_to("e", Stage.LOADING, "connect")
    book.note("e", ready=False, draining=True)
    book.came_to("e", Stage.WARMING, "status")
    assert book.lives["e"].stage is Stage.DRAINING
    book.note("e", ready=False, draining=False)
    assert book.lives["e"].stage is Stage.WARMING


def test_unknown_ids_are_ignored_and_the_memory_of_the_gone_is_bounded() -> None:
    book = StageBook(Clock())
    book.came_to("x", Stage.LOADING)
    book.note("x", ready=True, draining=False)
    book.left("x")
    assert not book.lives
    assert not book.gone
    for number in range(MOST_GONE + 5):
        book.begin(f"e{number}")
        book.left(f"e{number}")
    assert (len(book.gone), book.left_in_all) == (MOST_GONE, MOST_GONE + 5)
    assert book.gone[0][0] == "e5"


STEPS = st.lists(
    st.tuples(st.floats(0, 1e4), st.one_of(st.sampled_from(COMING), st.tuples(st.booleans(), st.booleans()))),
    max_size=30,
)


@given(STEPS)
def test_every_second_belongs_to_exactly_one_stage(steps: list[tuple[float, object]]) -> None:
    clock = Clock()
    book = StageBook(clock)
    book.begin("e")
    for seconds, step in steps:
        clock.now_s += seconds
        if isinstance(step, Stage):
            book.came_to("e", step, "connect")
        elif isinstance(step, tuple):
            book.note("e", ready=step[0], draining=step[1])
    spent = book.lives["e"].seconds(clock.now_s)
    assert sum(spent.values()) == pytest.approx(clock.now_s - 100.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("path", "v1/completions"),
        ("deadline_s", 0.0),
        ("concurrency", 0),
        ("first_pause_s", 0.0),
        ("longest_pause_s", 0.1),
    ],
)
def test_a_probe_setting_out_of_range_names_itself(field: str, value: object) -> None:
    with pytest.raises(SettingError, match=field):
        ProbeSettings(**{field: value})  # type: ignore[arg-type]
