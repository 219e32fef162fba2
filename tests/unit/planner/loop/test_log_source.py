"""Demand, service and requests from a real log."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from data.errors import InputError, LogError
from data.fleet.types import Fleet
from data.log.join import JOINED
from data.types import Status
from planner.arm import Arm
from planner.demand_history import Naming
from planner.loop.log_source import LogSource, level_of
from planner.loop.sources import FileSource, LastWindow, seen_level
from planner.loop.window_requests import logged_window

NAMES = Naming(origin="eu-1")
Row = dict[str, object]


def row(number: int, decided_s: float = 0.0, attempt: int = 0, **given: object) -> Row:
    """A completed, good request of 100 tokens, unless told otherwise."""
    found: Row = {
        "request_id": number,
        "attempt": attempt,
        "decided_s": decided_s,
        "model": "chat@v1",
        "tenant": "acme",
        "workload_class": "interactive",
        "input_tokens": 500,
        "rtt_s": 0.0,
        "status": int(Status.COMPLETED),
        "ttft_s": 0.5,
        "e2e_s": 2.5,
        "output_tokens": 100,
    }
    return {**found, **given}


def table(rows: list[Row]) -> pa.Table:
    columns = {field.name: [one.get(field.name) for one in rows] for field in JOINED}
    arrays = [
        pa.array(columns[f.name], f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in JOINED
    ]
    return pa.table(arrays, names=[field.name for field in JOINED])


@pytest.mark.parametrize(
    ("changed", "good", "offered"),
    [
        ({}, 10.0, 10.0),
        ({"ttft_s": 1.2}, 5.0, 10.0),
        ({"rtt_s": 0.6}, 5.0, 10.0),
        ({"e2e_s": 50.0}, 5.0, 10.0),
        ({"status": int(Status.FAILED), "output_tokens": 0}, 5.0, 10.0),
        ({"status": int(Status.REJECTED), "output_tokens": None, "ttft_s": None}, 5.0, 10.0),
        ({"status": None, "output_tokens": None, "ttft_s": None, "e2e_s": None}, 5.0, 10.0),
        ({"status": int(Status.CLIENT_ERROR)}, 5.0, 5.0),
    ],
    ids=["good", "late", "far", "slow", "failed", "refused", "lost", "wrong itself"],
)
def test_goodput_counts_what_met_its_targets_and_demand_what_was_asked_for(
    fleet: Fleet, changed: Row, good: float, offered: float
) -> None:
    level = level_of(table([row(1), row(2, **changed)]), fleet, 0.0, 20.0)
    assert level.good_tokens_per_s == pytest.approx(good)
    assert level.offered_tokens_per_s == pytest.approx(offered)


def test_a_retried_request_counts_once_and_pays_for_its_first_attempt(fleet: Fleet) -> None:
    failed = row(1, 0.0, status=int(Status.FAILED), output_tokens=0)
    again = row(1, 0.8, attempt=1)
    level = level_of(table([again, failed]), fleet, 0.0, 10.0)
    assert (level.requests, level.good_tokens_per_s, level.offered_tokens_per_s) == (1.0, 0.0, 10.0)
    soon = row(1, 0.3, attempt=1)
    assert level_of(table([failed, soon]), fleet, 0.0, 10.0).good_tokens_per_s == 10.0


def test_requests_of_the_window_are_run_again_as_they_came(fleet: Fleet) -> None:
    rows = [
        row(7, 101.0),
        row(8, 103.0, attempt=1),
        row(9, 104.0, tenant="nobody"),
        row(10, 105.0, status=None, output_tokens=None),
        row(11, 106.0, status=int(Status.CLIENT_ERROR)),
        row(12, 107.0, output_tokens=300),
    ]
    window = logged_window(table(rows), NAMES, fleet, 100.0, 10.0, 100, 2)
    assert [request.arrival_s for request in window.requests[0]] == [1.0, 5.0, 7.0]
    assert [request.output_tokens for request in window.requests[0]] == [100, 200, 300]
    assert (len(window.requests), window.window_s) == (2, 10.0)
    assert {request.origin for request in window.requests[0]} == {"eu-1"}
    named = logged_window(table([row(7, 101.0, origin="eu-1")]), Naming(origin="other"), fleet, 100.0, 10.0, 9, 1)
    assert [request.origin for request in named.requests[0]] == ["eu-1"], "the row's own origin counts"
    cut = logged_window(table(rows), NAMES, fleet, 100.0, 10.0, 2, 1)
    assert [request.arrival_s for request in cut.requests[0]] == [0.0, 2.0]
    assert cut.window_s == pytest.approx(5.0)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory, fleet: Fleet) -> Path:
    """Two minutes of a simulated day, written as a router writes it."""
    from data.log.settings import LogSettings
    from data.log.writer import LogWriter
    from data.synth.assign import Assignment
    from data.synth.mix import Stream
    from data.synth.profiles import PROFILES
    from planner.scenario import Scenario
    from planner.trace_source import Shaped, SynthTrace

    folder = tmp_path_factory.mktemp("made") / "log"
    assign = Assignment("chat@v1", "acme", "interactive", (("eu-1", 1.0),))
    trace = SynthTrace((Stream(PROFILES["chat"], 3.0, assign),), 120.0, "test")
    with LogWriter(folder, LogSettings(rotate_age_s=None), writer_id="w") as writer:
        Scenario(fleet, Shaped(trace)).run(Arm("a", "least_request"), 0, sink=writer)
    return folder


def test_a_real_log_gives_demand_service_and_requests(log: Path, fleet: Fleet) -> None:
    source = LogSource(log, step_s=20.0, history_s=1000.0)
    demand = source.demand(fleet, 250.0, 40.0)
    assert [row.key for row in demand.rows] == [("chat@v1", "interactive", "acme", "eu-1")]
    level = seen_level((FileSource(log / "none.yaml"), source), fleet, 0.0, 220.0)
    assert level is not None
    assert 0.5 < level.good_share <= 1.0
    assert level.requests > 100
    assert demand.rows[0].median == pytest.approx(level.offered_tokens_per_s, rel=0.7)
    window = source.requests(fleet, LastWindow(220.0, 100.0, 1000, 1))
    assert window is not None
    assert len(window.requests[0]) > 100
    assert source.level(fleet, 9000.0, 9500.0) is None, "a silent log knows nothing; it does not say 0"
    assert source.level(fleet, 100.0, 130.0) is None


def test_a_log_that_is_not_there_yet_is_unknown_not_zero_f133(tmp_path: Path, fleet: Fleet) -> None:
    """F133: an input that is absent at start is an error of this step; the next step looks again."""
    source = LogSource(tmp_path / "log")
    with pytest.raises(LogError, match="no log here"):
        source.demand(fleet, 1000.0, 900.0)
    (tmp_path / "log" / "decisions").mkdir(parents=True)
    with pytest.raises(InputError, match="no decision yet"):
        source.demand(fleet, 1000.0, 900.0)
    assert seen_level((source,), fleet, 0.0, 1000.0) is None


def test_rows_that_a_router_still_holds_are_no_fall_of_demand(tmp_path: Path, fleet: Fleet) -> None:
    """One request a second; those of the last minute are not in the files yet when the window has just ended."""
    from data.log.settings import LogSettings
    from data.log.writer import LogWriter

    with LogWriter(tmp_path, LogSettings(rotate_age_s=None)) as writer:
        for second in range(3540):
            key = {"request_id": second, "attempt": 0}
            names = {"model": "chat@v1", "tenant": "acme", "workload_class": "interactive", "origin": "eu-1"}
            writer.decision({**key, **names, "decided_s": float(second), "input_tokens": 500})
            end = {"finished_s": second + 0.5, "status": int(Status.COMPLETED), "output_tokens": 100}
            writer.outcome({**key, **end})
    demand = LogSource(tmp_path, step_s=600.0).demand(fleet, 3600.0, 900.0)
    assert demand.rows[0].median == pytest.approx(100.0, rel=0.01)
    assert demand.missing == ()
