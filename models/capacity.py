"""How much one replica, and a group of replicas, can carry within a class's service targets.

Closed form from the catalog's step times (``data.catalog.types.ServiceTimes``), with a queueing correction:

- *Variable work* of one request: ``W = prefill(u after h) − p0 + L·(d1 + d2·k)``, with ``u`` uncached and ``h``
  cached prompt tokens, ``L`` output tokens and ``k = u + h + L/2`` KV tokens held on average.
- *Step time* at rate ``λ`` (requests/s): a step costs its fixed part ``f`` once (the weights: ``d0`` and the
  saturating decode, or ``p0`` if that is more and a prefill is in it; and host time) and the variable work of
  everything in it, so ``τ = f / (1 − λW)``; by Little's law the batch is ``B = λLτ``.
- *TPOT* of a request is the mean of ``τ`` over its own steps; the prefills that fall into them are Poisson, so
  its quantile is ``τ + z·P·sqrt(λlτ·(1 + v²))/l``, where ``P`` is the variable prefill time of one request, ``v``
  the variation of lengths and ``l`` a short answer (one standard deviation below the mean of its logarithm).
- *TTFT* is the wait of an M/G/1 queue for prefill (service ``T = P + u/b·(f + decode)`` with ``b`` prefill tokens
  a step) plus the own service, plus half a step. The quantile uses the exponential tail of that queue.
- *Memory*: sequences in the batch are a birth-death chain with birth rate ``λ`` and death rate
  ``n·(1 − λP) / (L·(f + n·v))``, so its tail is known. The chance that their KV tokens overflow must be tiny:
  an engine that preempts by recomputing does not only slow down then, it collapses and stays there.

The rate is the largest ``λ`` that keeps every target, found by bisection: each limit only tightens with ``λ``.
A group of ``n`` pools its queues: ``F[n] = μ·(n − β·sqrt(n))``, where ``μ`` is the rate without any fluctuation
(no queue, ``z = 0``) and ``β`` makes ``F[1]`` the single replica's rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from data.catalog.types import ServiceTimes
from data.errors import SettingError
from data.types import FloatArray, Slo

BISECTIONS = 50
SUBSTITUTIONS = 20
OWN_VARIATION = 0.5
"""Beyond this spread of lengths a request's own prompt does not count against the rate: prompts so long miss the
target on an idle replica too, and no replica more would help them."""


@dataclass(frozen=True, slots=True)
class ReplicaLimits:
    """What bounds a replica besides its speed.

    Attributes:
        kv_capacity_tokens: KV tokens that fit (> 0).
        max_num_seqs: Sequences in one batch, at most (> 0).
        batch_token_budget: Tokens of one step, at most (> 0).
    """

    kv_capacity_tokens: float
    max_num_seqs: int
    batch_token_budget: int


@dataclass(frozen=True, slots=True)
class ClassShape:
    """What requests of one class look like on average.

    Attributes:
        input_tokens: Prompt length (>= 1).
        output_tokens: Output length (>= 1).
        hit_share: Share of the prompt found in the prefix cache (0 to 1, below 1).
        length_variation: Standard deviation of prompt and output lengths over their mean (>= 0).
    """

    input_tokens: float
    output_tokens: float
    hit_share: float = 0.0
    length_variation: float = 1.0


@dataclass(frozen=True, slots=True)
class CapacitySettings:
    """Constants of the queueing correction.

    Attributes:
        percentile: Share of requests that must meet each target (0.5 to 0.999).
        queue_factor: Scales the waiting time of the M/G/1 queue (0 to 10); 1 = the formula as it stands.
        rate_limit: Least share of idle time that a replica keeps, whatever the targets (0 to 0.5).
        overflow_chance: Share of time in which the KV tokens of the batch may be at their limit (1e-9 to 0.1).
    """

    percentile: float = 0.95
    queue_factor: float = 1.0
    rate_limit: float = 0.02
    overflow_chance: float = 1e-3

    def __post_init__(self) -> None:
        ranges = (
            ("percentile", 0.5, 0.999),
            ("queue_factor", 0.0, 10.0),
            ("rate_limit", 0.0, 0.5),
            ("overflow_chance", 1e-9, 0.1),
        )
        for name, low, high in ranges:
            if not low <= getattr(self, name) <= high:
                raise SettingError(
                    "setting out of range", field=name, value=getattr(self, name), expected=f"{low} to {high}"
                )


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """A replica in steady state at some request rate; ``inf`` times mean that it cannot keep up."""

    step_s: float
    batch: float
    ttft_s: float
    tpot_s: float
    e2e_s: float
    fits: bool
    """Whether sequences and KV tokens stay within the replica's limits."""


def operating_point(
    times: ServiceTimes,
    limits: ReplicaLimits,
    shape: ClassShape,
    rate: float,
    settings: CapacitySettings,
    *,
    steady: bool = False,
) -> OperatingPoint:
    """Times at the settings' percentile for ``rate`` requests/s; ``steady`` leaves every fluctuation out."""
    cached = shape.hit_share * shape.input_tokens
    fresh = shape.input_tokens - cached
    length = shape.output_tokens
    held = shape.input_tokens + length / 2
    # Attention grows with the square of the prompt: its mean needs the second moment of the lengths.
    prefill = times.prefill_s(fresh, cached) - times.p0 + times.p2 * (fresh * shape.length_variation) ** 2 / 2
    work = prefill + length * (times.d1 + times.d2 * held)
    idle = 1.0 - rate * work
    if idle <= settings.rate_limit:
        return OperatingPoint(math.inf, math.inf, math.inf, math.inf, math.inf, fits=False)
    step, batch = _steady_step(times, rate, length, idle)
    z = 0.0 if steady else NormalDist().inv_cdf(settings.percentile)
    # Prefills that land in one request's decode are Poisson; their spread is that of their count and their size.
    short = length * math.exp(-math.sqrt(math.log1p(shape.length_variation**2)))
    spread = math.sqrt(rate * short * step * (1 + shape.length_variation**2))
    tpot = step + z * prefill * spread / short
    room = max(limits.batch_token_budget - batch, 0.25 * limits.batch_token_budget)
    per_step = step * idle + batch * (times.d1 + times.d2 * held)
    steps = fresh / room
    wait = 0.0 if steady else _wait_quantile(rate, prefill + steps * per_step, shape, settings)
    # A long prompt takes longer for its owner too; below one step it does not matter.
    longer = 1.0 + min(shape.length_variation, OWN_VARIATION) * z * min(steps, 1.0)
    ttft = wait + (prefill + max(steps, 1.0) * per_step) * longer + step / 2
    fits = batch + z * math.sqrt(batch) <= limits.max_num_seqs and batch * held <= limits.kv_capacity_tokens
    if not steady:
        fits = fits and _overflow_chance(times, limits, shape, rate, prefill) <= settings.overflow_chance
    return OperatingPoint(step, batch, ttft, tpot, ttft + (length - 1) * tpot, fits)


def _steady_step(times: ServiceTimes, rate: float, length: float, idle: float) -> tuple[float, float]:
    """Step time and batch: its fixed part depends on both, so a few rounds of substitution from below."""
    step, batch = (times.d0 + times.host_overhead) / idle, 0.0
    for _ in range(SUBSTITUTIONS):
        fixed = times.decode_fixed_s(max(batch, 1.0)) - times.d1 * max(batch, 1.0)
        with_prefill = max(times.p0 - fixed, 0.0) * min(rate * step, 1.0)
        step = (fixed + with_prefill + times.host_overhead) / idle
        batch = rate * length * step
    return step, batch


def _overflow_chance(
    times: ServiceTimes, limits: ReplicaLimits, shape: ClassShape, rate: float, prefill: float
) -> float:
    """Share of time in which the sequences of the batch need all KV tokens: the tail of the birth-death chain."""
    held = shape.input_tokens + shape.output_tokens / 2
    count = limits.kv_capacity_tokens / held
    # n sequences of varying length need the KV of n + 2·v·sqrt(n) mean ones.
    root = math.sqrt(shape.length_variation**2 + count) - shape.length_variation
    most = int(root * root)
    left = 1.0 - rate * prefill
    if most < 1 or left <= 0:
        return 1.0
    sizes = np.arange(1, 2 * most + 2, dtype=np.float64)
    saturating = times.d_sat * (1.0 - np.exp(-sizes / times.sat_batch))
    steps = times.d0 + saturating + times.host_overhead + sizes * (times.d1 + times.d2 * held)
    log_weight = np.concatenate([[0.0], np.cumsum(np.log(rate * shape.output_tokens * steps / (sizes * left)))])
    weight = np.exp(log_weight - log_weight.max())
    return float(weight[most:].sum() / weight.sum())


def _wait_quantile(rate: float, service: float, shape: ClassShape, settings: CapacitySettings) -> float:
    """Wait before prefill at the percentile: M/G/1, exponential beyond the chance of waiting at all."""
    load = rate * service
    if load >= 1.0:
        return math.inf
    mean_if_waiting = service * (1 + shape.length_variation**2) / 2 / (1 - load)
    chance = (1 - settings.percentile) / max(load, 1e-12)
    return settings.queue_factor * mean_if_waiting * max(-math.log(chance), 0.0) if chance < 1 else 0.0


def meets(point: OperatingPoint, slo: Slo) -> bool:
    """Whether the times at the percentile keep every target that is set."""
    return (
        point.fits
        and (slo.ttft_s is None or point.ttft_s <= slo.ttft_s)
        and (slo.tpot_s is None or point.tpot_s <= slo.tpot_s)
        and (slo.deadline_s is None or point.e2e_s <= slo.deadline_s)
    )


def request_rate(
    times: ServiceTimes,
    limits: ReplicaLimits,
    shape: ClassShape,
    slo: Slo,
    settings: CapacitySettings,
    *,
    steady: bool = False,
) -> float:
    """Largest rate (requests/s) of one replica that keeps the targets; 0 if even an idle one misses them."""
    targets = sum(target is not None for target in (slo.ttft_s, slo.tpot_s, slo.deadline_s))
    # Misses of several targets may fall on different requests: each target gets its part of the allowance.
    each = replace(settings, percentile=1 - (1 - settings.percentile) / max(targets, 1))
    low, high = 0.0, 1.0 / max(times.prefill_s(1.0) - times.p0, 1e-6)
    if not meets(operating_point(times, limits, shape, 1e-9, each, steady=steady), slo):
        return 0.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        ok = meets(operating_point(times, limits, shape, middle, each, steady=steady), slo)
        low, high = (middle, high) if ok else (low, middle)
    return low


def replica_rate(
    times: ServiceTimes,
    limits: ReplicaLimits,
    shape: ClassShape,
    slo: Slo,
    settings: CapacitySettings | None = None,
) -> float:
    """Output tokens/s that one replica carries within the targets, at the settings' percentile.

    Rises with KV capacity, hit share and looser targets; falls with prompt length and with the percentile.
    """
    return shape.output_tokens * request_rate(times, limits, shape, slo, settings or CapacitySettings())


@dataclass(frozen=True, slots=True)
class GroupRate:
    """``F[n] = rate·(n − loss·sqrt(n))`` for n >= 1: output tokens/s of n replicas that share one queue."""

    rate: float
    loss: float

    def of(self, replicas: float) -> float:
        """Output tokens/s of that many replicas; a fraction of one replica is its share of the time."""
        if replicas <= 1.0:
            return max(replicas, 0.0) * self.rate * (1.0 - self.loss)
        return self.rate * (replicas - self.loss * math.sqrt(replicas))

    def table(self, replicas: int, parts: int = 1) -> FloatArray:
        """``F`` at 0, 1/parts, 2/parts, … up to that many replicas."""
        return np.array([self.of(k / parts) for k in range(replicas * parts + 1)])


def group_rate(
    times: ServiceTimes,
    limits: ReplicaLimits,
    shape: ClassShape,
    slo: Slo,
    settings: CapacitySettings | None = None,
) -> GroupRate:
    """The pooling law of a replica and a class, from its rate with and without waiting."""
    settings = settings or CapacitySettings()
    alone = request_rate(times, limits, shape, slo, settings)
    free = max(request_rate(times, limits, shape, slo, settings, steady=True), alone)
    if free <= 0.0:
        return GroupRate(0.0, 0.0)
    return GroupRate(free * shape.output_tokens, 1.0 - alone / free)
