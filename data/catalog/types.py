"""Catalog values: what a GPU is, what a model needs, how long its steps take."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, slots=True)
class Source:
    """Where a number comes from and how far it may be off."""

    name: str
    retrieved: date
    median_error: float | None = None
    """Median absolute relative error of the fit against its source's points."""


@dataclass(frozen=True, slots=True)
class GpuType:
    """One GPU model. Bandwidths in bytes/s."""

    name: str
    memory_gb: float
    memory_bandwidth: float
    power_kw: float
    price_per_hour: float
    """Relative cost of one GPU-hour; only ratios matter."""
    source: Source


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """Step times of one replica (model, GPU type, tensor-parallel degree), in seconds.

    Prefill of ``n`` tokens after ``cached`` ones: ``p0 + p1·n + p2·n·(cached + n/2)``.
    One decode step of ``batch`` sequences that hold ``kv`` tokens: ``d0 + d1·batch + d2·kv``.
    A mixed step costs the larger fixed part once and the variable parts of both:
    ``max(p0, d0) + (prefill − p0) + (decode − d0) + host_overhead``.
    """

    p0: float
    p1: float
    p2: float
    d0: float
    d1: float
    d2: float
    host_overhead: float = 0.0

    def prefill_s(self, tokens: float, cached: float = 0.0) -> float:
        """Time of one prefill step over ``tokens`` new tokens after ``cached`` ones, without host overhead."""
        return self.p0 + self.p1 * tokens + self.p2 * tokens * (cached + tokens / 2)

    def decode_s(self, batch: float, kv_tokens: float) -> float:
        """Time of one decode step, without host overhead."""
        return self.d0 + self.d1 * batch + self.d2 * kv_tokens


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """All the catalog knows about one (model, GPU type, tensor-parallel degree)."""

    catalog_model: str
    gpu_type: str
    tensor_parallel: int
    times: ServiceTimes
    kv_capacity_tokens: int
    """KV tokens that fit at a GPU memory share of 0.90."""
    load_s: float
    """From start command to ready, weights on local disk."""
    warm_load_s: float
    """The same from a prewarmed copy in host memory."""
    weights_gb: float
    """Weights of the whole replica (all its GPUs together)."""
    source: Source
