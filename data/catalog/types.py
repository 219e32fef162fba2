"""Catalog values: what a GPU is, what a model needs, how long its steps take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, slots=True)
class Source:
    """Where a number comes from and how far it may be off."""

    name: str
    retrieved: date
    median_error: float | None = None
    """Median absolute relative error of the fit against its source's points: the worse of prefill and decode."""
    prefill_error: float | None = None
    """Median absolute relative error of the prefill fit alone."""
    decode_error: float | None = None
    """Median absolute relative error of the decode fit alone."""


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
    One decode step of ``batch`` sequences that hold ``kv`` tokens: ``d0 + d1·batch + d2·kv + sat(batch)`` with
    ``sat(batch) = d_sat·(1 − exp(−batch / sat_batch))``. That term is 0 for dense models; for a mixture of experts
    it is the time to read expert weights, which grows with the batch until every expert is in use. At a fixed
    batch a step stays linear in ``kv``, so many steps still sum in closed form.
    A mixed step reads the weights once, whoever needs them, and pays the variable parts of both:
    ``max(p0, d0 + sat(batch)) + (prefill − p0) + d1·batch + d2·kv + host_overhead``.
    """

    p0: float
    p1: float
    p2: float
    d0: float
    d1: float
    d2: float
    host_overhead: float = 0.0
    d_sat: float = 0.0
    """Decode time that saturates with the batch, in seconds (>= 0)."""
    sat_batch: float = 1.0
    """Batch at which the saturating part has reached 63 % (> 0)."""

    def prefill_s(self, tokens: float, cached: float = 0.0) -> float:
        """Time of one prefill step over ``tokens`` new tokens after ``cached`` ones, without host overhead."""
        return self.p0 + self.p1 * tokens + self.p2 * tokens * (cached + tokens / 2)

    def decode_s(self, batch: float, kv_tokens: float) -> float:
        """Time of one decode step, without host overhead."""
        return self.decode_fixed_s(batch) + self.d2 * kv_tokens

    def decode_fixed_s(self, batch: float) -> float:
        """The part of a decode step that does not depend on the KV tokens."""
        return self.d0 + self.d1 * batch + self.saturating_s(batch)

    def saturating_s(self, batch: float) -> float:
        """``sat(batch)`` of the class docstring: expert weights read by a decode step."""
        if self.d_sat == 0.0:
            return 0.0
        return self.d_sat * (1.0 - math.exp(-batch / self.sat_batch))

    def mixed_s(self, tokens: float, cached: float, batch: float, kv_tokens: float) -> float:
        """Time of one step with a prefill and a decode part, host overhead included."""
        weights = max(self.p0, self.d0 + self.saturating_s(batch))
        prefill = self.prefill_s(tokens, cached) - self.p0
        return weights + prefill + self.d1 * batch + self.d2 * kv_tokens + self.host_overhead


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
