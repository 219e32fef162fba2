"""The watch that joins outcomes with predictions, on rows of the toy queue."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from data.log.join import JOINED
from data.types import Status
from models.calibration import LOAD_BANDS
from models.drift import DriftMonitor, DriftSettings, DriftState
from models.drift_watch import DriftWatch
from models.training import Trained


def feed(watch: DriftWatch, table: Any, slower: float = 1.0) -> None:
    for number, row in enumerate(table.to_pylist()):
        row |= {"request_id": number, "attempt": 0, "endpoint": "e", "finished_s": row["decided_s"] + row["e2e_s"]}
        for name in ("ttft_s", "tpot_s"):
            row[name] = None if row[name] is None else row[name] * slower
        outcomes = ("request_id", "attempt", "finished_s", "status", "ttft_s", "tpot_s", "e2e_s", "output_tokens")
        watch.decision({name: value for name, value in row.items() if name not in outcomes[2:]})
        watch.outcome({name: row[name] for name in outcomes})
    watch.flush()


def test_f069_watch_finds_a_shift_and_nothing_before_it(
    toy_model: Trained, toy_table: Any, toy_kinds: Any
) -> None:
    monitor = DriftMonitor(DriftSettings(window=128))
    watch = DriftWatch(toy_model.predictor, monitor, toy_kinds)
    feed(watch, toy_table(2000, 11))
    assert monitor.alarms == 0
    feed(watch, toy_table(2000, 12), slower=1.6)
    drifted = {group.gpu_type for group in monitor.groups() if group.state is DriftState.DRIFTED}
    assert drifted == {"fast", "slow"}
    feed(watch, toy_table(2000, 13))
    # Busy bands see few requests: they stay drifted until enough new outcomes speak for the model.
    idle = {group.state for group in monitor.groups() if group.band == "idle"}
    assert idle == {DriftState.OK}
    assert monitor.recoveries > 0


def test_watch_is_bounded_and_counts_what_it_leaves_out(toy_model: Trained, toy_kinds: Any) -> None:
    watch = DriftWatch(toy_model.predictor, DriftMonitor(), toy_kinds, max_open=10)
    for number in range(25):
        watch.decision({"request_id": number, "attempt": 0, "endpoint": "e", "decided_s": 0.0})
    assert len(watch) == 10
    watch.decision({"request_id": 99, "attempt": 0, "endpoint": None, "decided_s": 0.0})
    watch.outcome({"request_id": 3, "attempt": 0, "finished_s": 1.0, "status": 0})
    watch.outcome({"request_id": 24, "attempt": 0, "finished_s": 1.0, "status": int(Status.CLIENT_ERROR)})
    watch.flush()
    assert dict(watch.left_out) == {"forgotten": 15, "no_decision": 1, "no_sample": 1}


class Next:
    """A sink that counts."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def decision(self, row: dict[str, Any]) -> None:
        self.seen.append("decision")

    def outcome(self, row: dict[str, Any]) -> None:
        self.seen.append("outcome")


def test_watch_hands_rows_on(toy_model: Trained, toy_kinds: Any) -> None:
    onward = Next()
    watch = DriftWatch(toy_model.predictor, DriftMonitor(), toy_kinds, onward)
    watch.decision({"request_id": 1, "attempt": 0, "endpoint": None, "decided_s": 0.0})
    watch.outcome({"request_id": 1, "attempt": 0, "finished_s": 1.0, "status": 3})
    assert onward.seen == ["decision", "outcome"]


def test_bounds_count_only_beyond_the_prediction(toy_model: Trained, toy_table: Any, toy_kinds: Any) -> None:
    table = toy_table(600, 21).to_pylist()
    short = [
        row | {"status": int(Status.CANCELLED), "ttft_s": None, "tpot_s": None, "e2e_s": 1e-4} for row in table
    ]
    monitor = DriftMonitor()
    watch = DriftWatch(toy_model.predictor, monitor, toy_kinds)
    watch.take(pa.Table.from_pylist(short, schema=JOINED))
    assert monitor.groups() == []
    watch.take(pa.Table.from_pylist([row | {"e2e_s": 1e4} for row in short], schema=JOINED))
    assert all(group.state is not DriftState.OK for group in monitor.groups())
    assert {group.target for group in monitor.groups()} == {"ttft_s"}
    assert {group.band for group in monitor.groups()} <= set(LOAD_BANDS)
