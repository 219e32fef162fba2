"""A plan that does harm, seen in the log that routers write, is taken back; silence takes nothing back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.log.partitions import HOUR_S, partition_name
from data.log.schema import DECISIONS, OUTCOMES
from data.plan import PlanDocument
from data.types import Status
from planner.demand import DemandTable
from planner.loop.log_source import LogSource
from planner.loop.loop_parts import LoopParts
from planner.loop.runner import PlannerLoop
from planner.loop.schedule import Schedule
from planner.loop.settings import LoopSettings
from planner.loop.sources import seen_level
from planner.loop.step import StepResult, run_step
from planner.plan_store.entry import EntryKind
from planner.plan_store.store import PlanStore
from planner.settings import PlannerSettings

START_S = 1_800_000_000.0
MakePlan = Callable[..., PlanDocument]
MakeDemand = Callable[..., DemandTable]


def write_rows(log: Path, since_s: float, ttft_s: float, name: str, requests: int = 600) -> None:
    """Two requests a second of 100 tokens each, written as a router writes them."""
    times = [since_s + i / 2 for i in range(requests)]
    first = int(since_s)
    for hour in {int(at // HOUR_S) for at in times}:
        at = [(i, t) for i, t in enumerate(times) if int(t // HOUR_S) == hour]
        rows = {
            "decisions": [
                {"request_id": first + i, "attempt": 0, "decided_s": t, "model": "chat@v1", "tenant": "acme",
                 "workload_class": "interactive", "input_tokens": 500, "rtt_s": 0.0}
                for i, t in at
            ],
            "outcomes": [
                {"request_id": first + i, "attempt": 0, "finished_s": t + 3.0, "status": int(Status.COMPLETED),
                 "ttft_s": ttft_s, "e2e_s": ttft_s + 2.0, "output_tokens": 100}
                for i, t in at
            ],
        }  # fmt: skip
        for table, schema in (("decisions", DECISIONS), ("outcomes", OUTCOMES)):
            folder = log / table / partition_name(hour)
            folder.mkdir(parents=True, exist_ok=True)
            columns = [
                pa.array([row.get(field.name) for row in rows[table]], _plain(field.type)).cast(field.type)
                for field in schema
            ]
            pq.write_table(pa.table(columns, schema=schema), folder / f"part-{name}-1.parquet")


def _plain(kind: Any) -> Any:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


@pytest.mark.parametrize(
    ("ttft_s", "kind"),
    [(0.4, EntryKind.PUBLISHED), (1.8, EntryKind.ROLLED_BACK), (None, EntryKind.PUBLISHED)],
    ids=["served as before", "first tokens come late", "the log falls silent"],
)
def test_goodput_in_the_log_decides_on_a_published_plan(
    fleet_path: Path, plan: MakePlan, need: MakeDemand, tmp_path: Path, ttft_s: float | None, kind: EntryKind
) -> None:
    log, store = tmp_path / "log", PlanStore(tmp_path / "plans")
    source, settings = LogSource(log), LoopSettings(settle_s=60.0, window_s=300.0, watch_s=3600.0)
    write_rows(log, START_S - 400.0, 0.4, "before", 720)
    now_s, replicas = START_S, 2

    def apart(function: Callable[..., Any], *arguments: Any, **limits: Any) -> Any:
        if function is run_step:
            job = arguments[0]
            level = seen_level(job.sources, job.fleet, job.now_s - settings.window_s, job.now_s)
            return StepResult(plan(replicas), need(200.0), level, None)
        return function(*arguments)

    parts = LoopParts(fleet_path, store, (source,), Schedule(86_400.0), PlannerSettings(), settings)
    loop = PlannerLoop(parts, lambda: now_s, apart)
    loop.tick()
    replicas = 3
    loop.step_soon()
    loop.tick()
    watch = loop.status().watch
    assert watch is not None
    assert watch.baseline.good_share == pytest.approx(1.0)
    assert watch.baseline.offered_tokens_per_s == pytest.approx(200.0, rel=0.02)
    if ttft_s is not None:
        write_rows(log, watch.from_s, ttft_s, "after", 800)
    for minute in range(3, 7):
        now_s = watch.from_s + 60.0 * minute
        loop.tick()
    entries = store.folder.history()
    assert entries[0].kind is kind
    assert (entries[0].restores == 1) == (kind is EntryKind.ROLLED_BACK)
