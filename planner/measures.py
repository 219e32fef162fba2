"""The figures that a comparison reports of each run: one list for tables, charts and machine output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from planner.sim.result import GroupResult, RunResult
from router.goodput import Waste

GroupKind = Literal["class", "tenant", "tier"]
GROUP_KINDS: tuple[GroupKind, ...] = ("class", "tenant")
Unit = Literal["tokens/s", "share", "s", "count", "GPU-h", "tokens/GPU-h"]


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a run.

    Attributes:
        key: Name in machine output.
        label: Name in tables and charts, short enough for the head of a column.
        unit: Unit of the value that ``of`` returns; shares run from 0 to 1.
        better: Which way is better, or ``"neither"`` where that depends.
        of: Takes the figure from a run; NaN when the run did not measure it.
    """

    key: str
    label: str
    unit: Unit
    better: Literal["higher", "lower", "neither"]
    of: Callable[[RunResult], float]


GOODPUT = Measure("goodput", "Goodput", "tokens/s", "higher", lambda run: run.total.goodput_tokens_per_s)
OUTPUT_RATE = Measure("output_rate", "Output", "tokens/s", "higher", lambda run: run.total.output_tokens_per_s)
ATTAINMENT_FINISHED = Measure(
    "attainment_finished", "Attainment, finished", "share", "higher", lambda run: run.total.attainment_finished
)
ATTAINMENT_OFFERED = Measure(
    "attainment_offered", "Attainment, offered", "share", "higher", lambda run: run.total.attainment_offered
)
TTFT_P50 = Measure("ttft_p50", "TTFT P50", "s", "lower", lambda run: run.total.ttft.p50)
TTFT_P95 = Measure("ttft_p95", "TTFT P95", "s", "lower", lambda run: run.total.ttft.p95)
TTFT_P99 = Measure("ttft_p99", "TTFT P99", "s", "lower", lambda run: run.total.ttft.p99)
TPOT_P50 = Measure("tpot_p50", "TPOT P50", "s", "lower", lambda run: run.total.tpot.p50)
TPOT_P95 = Measure("tpot_p95", "TPOT P95", "s", "lower", lambda run: run.total.tpot.p95)
TPOT_P99 = Measure("tpot_p99", "TPOT P99", "s", "lower", lambda run: run.total.tpot.p99)
FAILED = Measure("failed", "Failed", "count", "lower", lambda run: run.total.failed)
CANCELLED = Measure("cancelled", "Cancelled", "count", "lower", lambda run: run.total.cancelled)
REJECTED = Measure("rejected", "Rejected", "count", "lower", lambda run: run.total.rejected)
REPEATS = Measure("repeats", "Repeats", "count", "lower", lambda run: run.total.repeats)
RUNNING = Measure("running", "Unfinished", "count", "neither", lambda run: run.total.running)
PREEMPTIONS = Measure("preemptions", "Preemptions", "count", "lower", lambda run: run.preemptions)
BREACHES = Measure("residency_breaches", "Breaches", "count", "lower", lambda run: run.residency_breaches)
HIT_RATE = Measure("hit_rate", "Hit rate", "share", "higher", lambda run: run.total.hit_rate)
WASTED = {
    cause: Measure(
        f"wasted_{cause}",
        cause.capitalize(),
        "count",
        "lower",
        lambda run, cause=cause: run.total.wasted_tokens.get(cause, 0),  # type: ignore[misc]
    )
    for cause in Waste().by_cause()
}
GPU_HOURS = Measure("gpu_hours", "GPU-hours", "GPU-h", "lower", lambda run: run.gpu_hours)
GOODPUT_PER_GPU_HOUR = Measure(
    "goodput_per_gpu_hour", "Goodput per GPU-hour", "tokens/GPU-h", "higher", lambda run: run.goodput_per_gpu_hour
)

MEASURES = (
    GOODPUT,
    OUTPUT_RATE,
    ATTAINMENT_FINISHED,
    ATTAINMENT_OFFERED,
    TTFT_P50,
    TTFT_P95,
    TTFT_P99,
    TPOT_P50,
    TPOT_P95,
    TPOT_P99,
    FAILED,
    CANCELLED,
    REJECTED,
    REPEATS,
    RUNNING,
    PREEMPTIONS,
    BREACHES,
    HIT_RATE,
    GPU_HOURS,
    GOODPUT_PER_GPU_HOUR,
)
"""Every figure, in the order in which tables show them."""


def group_of(run: RunResult, kind: GroupKind) -> dict[str, GroupResult]:
    """Results of a run by class, tenant or tier of the tenant."""
    return {"class": run.by_class, "tenant": run.by_tenant, "tier": run.by_tier}[kind]
