"""Demand: counters, forecasts, files and traces."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.errors import InputError, SettingError
from data.fleet.types import Fleet
from data.types import TraceBatch
from planner.demand import (
    LEVELS,
    CounterKind,
    DemandRow,
    clamp_forecast,
    demand_table,
    merge_quantiles,
    read_counter,
    spread_quantiles,
)
from planner.demand_file import parse_demand
from planner.demand_trace import TraceWindow, demand_from_trace
from planner.placement_jobs import value_segments

HEAD = "model: chat@v1, workload_class: batch, tenant: beta, origin: door"


@pytest.mark.parametrize(
    ("first", "last", "kind", "rate"),
    [
        (5120.0, 5120.0, CounterKind.ZERO, 0.0),
        (None, 5120.0, CounterKind.MISSING, None),
        (5120.0, None, CounterKind.MISSING, None),
        (math.nan, 5.0, CounterKind.MISSING, None),
        (5120.0, 12.0, CounterKind.RESET, 12.0 / 180.0),
        (5000.0, 5180.0, CounterKind.INCREASED, 1.0),
    ],
)
def test_three_inputs_that_look_alike(
    first: float | None, last: float | None, kind: CounterKind, rate: float | None
) -> None:
    """F098: zero traffic, missing data and a reset are three different inputs; no rate is negative or NaN."""
    reading = read_counter(first, last, 180.0)
    assert (reading.kind, reading.per_s) == (kind, rate)


def test_a_counter_below_zero_or_an_empty_window_is_refused() -> None:
    with pytest.raises(InputError, match="below 0"):
        read_counter(-1.0, 5.0, 180.0)
    with pytest.raises(InputError, match="window_s"):
        read_counter(1.0, 5.0, 0.0)


def test_falling_traffic_never_forecasts_below_zero() -> None:
    """F109: the raw trend of a falling series is clamped before anything multiplies it."""
    assert clamp_forecast([-12.5, -3.0, 2.0, math.nan]) == ((0.0, 0.0, 2.0, 2.0), 3)
    with pytest.raises(InputError, match="infinite"):
        clamp_forecast([1.0, math.inf])


@given(st.lists(st.floats(allow_nan=True, allow_infinity=False), min_size=4, max_size=4))
def test_a_forecast_is_always_plannable(values: list[float]) -> None:
    clean, _ = clamp_forecast(values)
    assert all(math.isfinite(v) and v >= 0 for v in clean)
    assert list(clean) == sorted(clean)


@given(st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 1)), min_size=1, max_size=6), st.floats(0, 1))
def test_sums_of_demand_keep_their_median_and_their_order(
    parts: list[tuple[float, float]], correlation: float
) -> None:
    rows = [spread_quantiles(median, spread) for median, spread in parts]
    merged = merge_quantiles(rows, correlation)
    assert merged[1] == pytest.approx(sum(row[1] for row in rows))
    assert list(merged) == sorted(merged)
    assert merged[-1] <= sum(row[-1] for row in rows) * (1 + 1e-9) + 1e-9


def test_segments_are_concave_and_end_at_the_highest_quantile() -> None:
    width, chance = value_segments(spread_quantiles(1000.0, 0.3))
    assert width.sum() == pytest.approx(spread_quantiles(1000.0, 0.3)[-1])
    assert (np.diff(chance) <= 0).all()
    assert 0.9 < chance[0] <= 1.0
    certain, sure = value_segments((500.0,) * len(LEVELS))
    assert certain.tolist() == [500.0, 0.0, 0.0, 0.0]
    assert sure[0] == 1.0
    assert value_segments((0.0, 0.0, 10.0, 20.0))[1][0] == 1.0


def test_rows_of_one_commodity_add_up() -> None:
    row = DemandRow("m", "c", "t", "o", spread_quantiles(100.0, 0.2))
    table = demand_table([row, row])
    assert len(table.rows) == 1
    assert table.total() == pytest.approx(200.0)


def test_a_demand_file_with_every_kind_of_line(fleet: Fleet) -> None:
    text = f"""
window_s: 180
demand:
  - {{{HEAD}, tokens_per_s: 900}}
  - {{model: chat@v1, workload_class: interactive, tenant: beta, origin: door, quantiles: [1, 2, 3, 4]}}
  - {{model: big@v1, workload_class: batch, tenant: beta, origin: door, counter: [5120, 5120]}}
  - {{model: big@v1, workload_class: interactive, tenant: beta, origin: door, counter: [5120, 18]}}
  - {{model: chat@v1, workload_class: batch, tenant: gamma, origin: door, counter: [null, 18]}}
  - {{model: chat@v1, workload_class: interactive, tenant: gamma, origin: door, missing: true}}
"""
    table = parse_demand(text, "demand.yaml", fleet)
    rates = {row.key[:3]: row.median for row in table.rows}
    assert rates == pytest.approx(
        {
            ("big@v1", "batch", "beta"): 0.0,
            ("big@v1", "interactive", "beta"): 0.1,
            ("chat@v1", "batch", "beta"): 900.0,
            ("chat@v1", "interactive", "beta"): 2.0,
        }
    )
    assert len(table.missing) == 2
    assert table.held_models() == {"chat@v1"}
    assert any("reset" in note for note in table.notes)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{{{HEAD}, tokens: 5}}", "unknown key"),
        (f"{{{HEAD}}}", "0 kinds of demand"),
        (f"{{{HEAD}, tokens_per_s: 5, missing: true}}", "2 kinds of demand"),
        (f"{{{HEAD}, quantiles: [1, 2]}}", "wrong length"),
        (f"{{{HEAD}, counter: [1, 2, 3]}}", "two samples"),
        (f"{{{HEAD}, tokens_per_s: 100000000000000}}", "out of range"),
        (f"{{{HEAD.replace('beta', 'betta')}, tokens_per_s: 5}}", "'beta'"),
        (f"{{{HEAD}, tokens_per_s: .nan}}", "finite"),
    ],
)
def test_a_wrong_line_is_named_with_its_place(fleet: Fleet, line: str, message: str) -> None:
    """F090 and strict reading: file, line, field and what would be right."""
    with pytest.raises(InputError, match=r"demand\.yaml:[23]") as caught:
        parse_demand(f"demand:\n  - {line}\n", "demand.yaml", fleet)
    assert message in str(caught.value)


def _trace(count: int = 400, tenant: str = "beta", model: str = "chat@v1") -> TraceBatch:
    rng = np.random.default_rng(3)
    at = np.sort(rng.uniform(0, 600, count))
    zeros = np.zeros(count, dtype=np.int64)
    return TraceBatch(
        request_id=np.arange(count),
        arrival_s=at,
        input_tokens=zeros + 100,
        output_tokens=zeros + 60,
        output_budget=zeros + 100,
        hash_offsets=np.zeros(count + 1, dtype=np.int64),
        hashes=np.empty(0, dtype=np.uint64),
        model=(model,) * count,
        tenant=(tenant,) * count,
        workload_class=("batch",) * count,
    )


def test_demand_of_a_trace_is_its_output_rate(fleet: Fleet) -> None:
    table = demand_from_trace([_trace()], fleet, TraceWindow(end_s=600.0))
    (row,) = table.rows
    assert row.key == ("chat@v1", "batch", "beta", "door")
    assert row.median == pytest.approx(40.0, rel=0.2)
    assert list(row.quantiles) == sorted(row.quantiles)
    assert (row.input_tokens, row.output_tokens) == (100.0, 60.0)


def test_scale_and_window_apply(fleet: Fleet) -> None:
    whole = demand_from_trace([_trace()], fleet, TraceWindow(end_s=600.0)).total()
    double = demand_from_trace([_trace()], fleet, TraceWindow(end_s=600.0, scale=2.0)).total()
    assert double == pytest.approx(2 * whole)
    half = demand_from_trace([_trace()], fleet, TraceWindow(start_s=300.0, end_s=600.0)).total()
    assert half == pytest.approx(whole, rel=0.25)


def test_unknown_names_are_counted_not_guessed(fleet: Fleet) -> None:
    table = demand_from_trace([_trace(), _trace(50, tenant="stranger")], fleet, TraceWindow(end_s=600.0))
    assert table.notes == ("50 requests left out: unknown tenant 'stranger'",)
    with pytest.raises(InputError, match="50 unknown model"):
        demand_from_trace([_trace(50, model="other@v1")], fleet, TraceWindow())


def test_blank_names_need_a_default(fleet: Fleet) -> None:
    with pytest.raises(InputError, match="tenant"):
        demand_from_trace([_trace(tenant="")], fleet, TraceWindow())
    table = demand_from_trace([_trace(tenant="")], fleet, TraceWindow(tenant="gamma"))
    assert table.rows[0].tenant == "gamma"


@pytest.mark.parametrize("bad", [{"bin_s": 0.0}, {"scale": -1.0}, {"start_s": 5.0, "end_s": 5.0}])
def test_a_window_out_of_range_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(SettingError):
        TraceWindow(**bad)  # type: ignore[arg-type]
