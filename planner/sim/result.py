"""What a simulated run gives back: totals, per class and tenant, distributions and a timeline."""

from __future__ import annotations

from dataclasses import dataclass, field

from data.types import FloatArray


@dataclass(frozen=True, slots=True)
class Distribution:
    """Quantiles of one time, seconds; NaN when nothing was measured."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class GroupResult:
    """Result of one group of requests (all, one class, one tenant). Rates are per second of the test period."""

    offered: int
    completed: int
    met: int
    failed: int
    cancelled: int
    rejected: int
    running: int
    repeats: int
    input_tokens: int
    output_tokens: int
    good_output_tokens: int
    goodput_tokens_per_s: float
    output_tokens_per_s: float
    attainment_finished: float
    """Share of completed requests that met their targets."""
    attainment_offered: float
    """Share of all offered requests that completed and met their targets."""
    hit_rate: float
    """Prefix-hit tokens / prompt tokens of dispatched requests."""
    ttft: Distribution
    tpot: Distribution
    e2e: Distribution
    wasted_tokens: dict[str, int] = field(default_factory=dict)
    """Tokens computed for nothing, by cause; see ``router.goodput``."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Fleet state over time, one point every ``step_s``; arrays are (points,) or (points, sites)."""

    step_s: float
    sites: tuple[str, ...]
    waiting: FloatArray
    running: FloatArray
    kv_use: FloatArray
    goodput_tokens_per_s: FloatArray


@dataclass(frozen=True, slots=True)
class RunResult:
    """One simulated run of one policy with one seed."""

    policy: str
    seed: int
    fleet: str
    duration_s: float
    """Length of the test period: first arrival to last event, or the time limit."""
    total: GroupResult
    by_class: dict[str, GroupResult]
    by_tenant: dict[str, GroupResult]
    gpu_hours: float
    preemptions: int
    residency_breaches: int
    timeline: Timeline
    ttft_histogram: tuple[FloatArray, FloatArray]
    """Edges (seconds, log-spaced) and counts of completed requests."""
    endpoint_requests: FloatArray
    wall_s: float = 0.0
    extra: dict[str, float] = field(default_factory=dict)
    by_tier: dict[str, GroupResult] = field(default_factory=dict)

    @property
    def goodput_per_gpu_hour(self) -> float:
        """Good output tokens per GPU-hour."""
        return self.total.good_output_tokens / self.gpu_hours if self.gpu_hours > 0 else 0.0
