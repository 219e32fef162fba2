"""Demand counted from the decision and outcome log: offered load, repeats, silences, edges, unreadable hours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from data.errors import InputError, SettingError
from data.log.reader import LogReader
from data.log.writer import LogWriter
from data.types import Status
from models.demand.settings import ForecastSettings
from planner.demand_forecast import PlanWindow, forecast_demand
from planner.demand_history import Naming, RecordedDemand
from planner.demand_log import LogDemandSettings, history_from_log

NAMES = Naming(origin="door")
STEP = LogDemandSettings(step_s=60.0)


@dataclass(frozen=True)
class Attempt:
    """One attempt of one request."""

    at: float
    request: int
    tenant: str = "a"
    attempt: int = 0
    status: Status | None = Status.COMPLETED
    prompt: int = 100
    output: int = 30
    budget: int = 500
    origin: str | None = None


def write(root: Path, attempts: Iterable[Attempt]) -> Path:
    with LogWriter(root) as log:
        for one in attempts:
            key = {"request_id": one.request, "attempt": one.attempt}
            log.decision(
                key
                | {"decided_s": one.at, "model": "chat@v1", "workload_class": "batch", "tenant": one.tenant}
                | {"input_tokens": one.prompt, "output_budget": one.budget, "origin": one.origin}
            )
            if one.status is not None:
                log.outcome(
                    key | {"finished_s": one.at + 0.5, "status": int(one.status), "output_tokens": one.output}
                )
    return root


def steady(
    tenants: str, until_s: float, every_s: float = 1.0, skip: tuple[float, float] = (0.0, 0.0)
) -> list[Attempt]:
    times = np.arange(0.0, until_s, every_s)
    return [
        Attempt(float(at), number * len(tenants) + place, tenant)
        for number, at in enumerate(times)
        for place, tenant in enumerate(tenants)
        if not skip[0] <= at < skip[1]
    ]


def count(root: Path, settings: LogDemandSettings = STEP, naming: Naming = NAMES) -> RecordedDemand:
    return history_from_log(LogReader(root), naming, settings)


def test_offered_load_is_counted_once_a_request_and_not_only_what_was_served(tmp_path: Path) -> None:
    """Refused, cancelled and lost requests are demand of mean length; repeats and client errors are not."""
    rows = [
        Attempt(0.0, 1),
        Attempt(1.0, 2, status=Status.REJECTED, output=0),
        Attempt(2.0, 3, status=Status.FAILED, output=4),
        Attempt(4.0, 3, attempt=1),
        Attempt(5.0, 4, status=Status.CANCELLED, output=50),
        Attempt(6.0, 5, status=Status.REJECTED, output=0, budget=12),
        Attempt(7.0, 6, status=None),
        Attempt(8.0, 7, status=Status.CLIENT_ERROR, output=0),
        Attempt(59.5, 8, output=30),
    ]
    found = count(write(tmp_path, rows))
    assert found.keys == (("chat@v1", "batch", "a", "door"),)
    assert found.requests_per_s[0].tolist() == pytest.approx([7 / 60])
    # Two of 30 completed; the other five (one of them with 50 tokens already) count 30 each, summed by window.
    assert found.tokens_per_s[0].tolist() == pytest.approx([(2 * 30 + 5 * 30) / 60])
    text = " ".join(found.notes)
    assert "5 requests did not complete" in text
    assert "1 repeats" in text
    assert "1 client errors" in text
    assert found.input_tokens[0] == pytest.approx(100)
    assert found.input_variation is not None
    assert found.input_variation[0] == pytest.approx(0.0, abs=1e-6)


def test_each_row_counts_for_its_own_origin_and_one_without_for_the_named_one(tmp_path: Path) -> None:
    rows = [Attempt(float(i), i, origin=("west", "west", "east", None)[i % 4]) for i in range(60)]
    found = count(write(tmp_path, rows))
    rates = {key[3]: found.requests_per_s[row, 0] for row, key in enumerate(found.keys)}
    assert rates == pytest.approx({"west": 30 / 60, "east": 15 / 60, "door": 15 / 60})


def test_refused_requests_never_count_more_than_they_were_allowed(tmp_path: Path) -> None:
    rows = [*steady("a", 60.0), *(Attempt(70.0 + i, 900 + i, "b", status=Status.REJECTED, output=0, budget=7)
                                  for i in range(50))]  # fmt: skip
    found = count(write(tmp_path, rows))
    assert found.tokens_per_s[1].tolist() == pytest.approx([0.0, 50 * 7 / 60])


def test_a_silence_of_all_is_a_gap_and_of_one_is_zero_demand(tmp_path: Path) -> None:
    """F098 F115: everybody silent from 150 to 310 s is unknown; tenant d silent from 420 s on is at 0."""
    rows = [row for row in steady("abcd", 600.0, skip=(150.0, 310.0)) if row.tenant != "d" or row.at < 420.0]
    found = count(write(tmp_path, rows))
    assert found.outage.tolist() == [False, False, True, True, True, True, False, False, False, False]
    by_tenant = {key[2]: found.requests_per_s[row] for row, key in enumerate(found.keys)}
    assert np.isnan(by_tenant["a"][2:6]).all()
    assert by_tenant["a"][[0, 1, 6, 9]].tolist() == pytest.approx([1.0] * 4)
    assert by_tenant["d"][[6, 7, 8, 9]].tolist() == pytest.approx([1.0, 0.0, 0.0, 0.0])
    assert any("outages of the collection" in note for note in found.notes)


def test_a_silence_that_chance_explains_or_that_lasts_is_believed(tmp_path: Path) -> None:
    """F098: one slow tenant, or a pause of few requests, is zero demand; so is a gap beyond its longest time."""
    slow = count(write(tmp_path / "slow", steady("abcd", 600.0, every_s=50.0, skip=(180.0, 300.0))))
    assert not slow.outage.any()
    alone = count(write(tmp_path / "alone", steady("a", 600.0, skip=(120.0, 300.0))))
    assert alone.requests_per_s[0, 2:5].tolist() == [0.0, 0.0, 0.0]


def test_a_log_that_fell_silent_holds_the_plan(tmp_path: Path) -> None:
    """F115: silence up to now is unknown, the forecast stands on the last value, and models hold what runs."""
    root = write(tmp_path, steady("abcd", 600.0))
    assert not count(root).outage.any()
    now = LogDemandSettings(step_s=60.0, until_s=780.0)
    found = count(root, now)
    assert found.now_s == 780.0
    assert found.outage.tolist() == [False] * 10 + [True] * 3
    made = forecast_demand(found, ForecastSettings(horizon_steps=3), PlanWindow(last=3))
    assert len(made.demand.missing) == 4
    assert made.demand.rows[0].median == pytest.approx(30.0, rel=0.01)


def test_cut_windows_at_both_ends_are_left_out(tmp_path: Path) -> None:
    rows = [row for row in steady("a", 400.0) if row.at >= 90.0]
    found = count(write(tmp_path, rows))
    assert found.now_s == 360.0
    assert found.requests_per_s[0].tolist() == pytest.approx([1.0] * 4)
    part = count(tmp_path, LogDemandSettings(60.0, since_s=120.0, until_s=240.0))
    assert (part.now_s, part.requests_per_s.shape[1]) == (240.0, 2)


def test_hours_that_cannot_be_read_are_unknown_and_named(tmp_path: Path) -> None:
    """F115: a broken file is missing data, never a demand of zero."""
    write(tmp_path, steady("abcd", 3 * 3600.0, every_s=20.0))
    (broken,) = sorted((tmp_path / "decisions").iterdir())[1].glob("*.parquet")
    write(tmp_path, [Attempt(3700.0, 10**6)])
    broken.write_bytes(b"nothing")
    found = count(tmp_path, LogDemandSettings(step_s=1200.0))
    assert found.outage.tolist() == [False] * 3 + [True] * 3 + [False] * 3
    assert any(broken.name in note for note in found.notes)


def test_memory_grows_with_windows_and_not_with_requests(tmp_path: Path) -> None:
    """Ten times the requests in the same hours give a table of the same size, and tenfold rates."""
    few = count(write(tmp_path / "few", steady("ab", 7201.0, every_s=10.0)))
    many = count(write(tmp_path / "many", steady("ab", 7201.0, every_s=1.0)))
    assert few.requests_per_s.shape == many.requests_per_s.shape
    assert many.requests_per_s == pytest.approx(10 * few.requests_per_s, rel=0.05)


def test_what_cannot_be_counted_is_refused(tmp_path: Path) -> None:
    write(tmp_path, steady("a", 30.0))
    with pytest.raises(InputError, match="shorter than one window"):
        count(tmp_path)
    with pytest.raises(InputError, match="no row of the log"):
        count(tmp_path, LogDemandSettings(60.0, since_s=5000.0))
    with pytest.raises(InputError, match="origin: requests name none"):
        count(tmp_path, LogDemandSettings(10.0), Naming())
    with pytest.raises(SettingError, match="step_s"):
        LogDemandSettings(step_s=0.0)
    with pytest.raises(SettingError, match="surprise"):
        LogDemandSettings(surprise=0.0)
    with pytest.raises(SettingError, match="until_s"):
        LogDemandSettings(since_s=5.0, until_s=5.0)
