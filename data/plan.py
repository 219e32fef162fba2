"""The plan document: what the planner decided, in one versioned JSON document.

``PlanDocument`` is the value; ``data.plan_io`` reads and writes it (strict, atomic) and publishes its JSON Schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

PLAN_SCHEMA_VERSION = 1


class PlanStatus(StrEnum):
    """How good the plan is. ``feasible_limit`` = a limit ended the search; never called optimal."""

    OPTIMAL = "optimal"
    FEASIBLE_LIMIT = "feasible_limit"
    KEPT_LAST = "kept_last"
    GREEDY = "greedy"
    INFEASIBLE = "infeasible"


@dataclass(frozen=True, slots=True)
class PlannedReplicas:
    """Replicas and prewarmed copies of one configuration at one site."""

    site: str
    config: str
    model: str
    gpu_type: str
    gpus_per_replica: int
    replicas: int
    prewarmed: int = 0


@dataclass(frozen=True, slots=True)
class TrafficShare:
    """Share (0 to 1) of one commodity sent to one site; a commodity's shares add up to its served part."""

    model: str
    workload_class: str
    tenant: str
    origin: str
    site: str
    share: float


@dataclass(frozen=True, slots=True)
class PoolSplit:
    """Capacity split of one pool: replicas' worth and output tokens/s given to one class (and tenant quotas).

    ``correction`` is the factor of the feedback that ``tokens_per_s`` holds; 1 = the rate of the capacity table.
    """

    site: str
    model: str
    gpu_type: str
    workload_class: str
    replicas: int
    tokens_per_s: float
    tenant_quota_tokens_per_s: dict[str, float]
    correction: float = 1.0


@dataclass(frozen=True, slots=True)
class UnmetDemand:
    """Demand or a promise that the plan leaves unserved, and why."""

    what: str
    model: str
    workload_class: str
    tenant: str
    missing: float
    unit: str
    reason: str


@dataclass(frozen=True, slots=True)
class Move:
    """One change against the running placement.

    Attributes:
        change: Replicas that start (above 0) or drain (below 0).
        cost: Value-weighted tokens lost while its replicas load.
        reason: What for, in words.
        lost_cache: Value-weighted tokens' worth of work to fill prefix caches anew.
        gain: Value-weighted tokens/s that it brings: what its replicas serve, or what the GPUs that it frees are
            worth to others; ``None`` = not known.
        gives_up: Value-weighted tokens/s that it costs while the plan is in force: what its GPUs are worth to
            others, or what its replicas would still serve; ``None`` = not known.
        binding: What stops one replica more, in words.
        begin_s: When each of its replicas begins, seconds after ``valid_from``, in rising order; empty = no order.
        lasts_s: Expected load or drain time of each.
    """

    site: str
    config: str
    change: int
    cost: float
    reason: str
    lost_cache: float = 0.0
    gain: float | None = None
    gives_up: float | None = None
    binding: tuple[str, ...] = ()
    begin_s: tuple[float, ...] = ()
    lasts_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ShadowPrice:
    """What one more unit of a resource that is used up would bring, fractions of replicas allowed.

    Attributes:
        resource: ``gpus``, ``power``, ``ingress``, ``host_memory`` or ``start_budget``.
        site: Where.
        gpu_type: Of which GPUs; empty for other resources.
        amount: How much more, in ``unit``.
        unit: ``GPU``, ``kW``, ``tokens/s`` or ``GB``.
        worth: Value-weighted tokens/s that it brings.
        tokens_per_s: The same change in plain output tokens/s.
        mends: Broken promises that it helps to keep, in words.
    """

    resource: str
    site: str
    gpu_type: str
    amount: float
    unit: str
    worth: float
    tokens_per_s: float
    mends: str = ""


@dataclass(frozen=True, slots=True)
class VersionRamp:
    """How requests that name a model without a version are shared between two versions of it.

    ``share`` (0 to 1) of them goes to ``new``, the others to ``old``, since the moment ``since``; ``state`` says
    whether the ramp goes on (``ramping``), is over (``done``), or failed at a gate (``failed``: all to ``old``).
    A request that names a version gets that version. ``ramp_id`` tells one ramp from another.
    """

    model: str
    old: str
    new: str
    share: float
    since: str
    ramp_id: str
    state: Literal["ramping", "done", "failed"] = "ramping"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PlanDocument:
    """One plan. Times are UTC ISO 8601 strings; ``objective`` and ``bound`` are value-weighted tokens/s."""

    plan_id: str
    parent_id: str | None
    made_at: str
    valid_from: str
    valid_until: str
    fleet: str
    input_digests: dict[str, str]
    status: PlanStatus
    objective: float
    goodput_tokens_per_s: float
    """The same plan counted in plain tokens/s, all values 1."""
    bound: float
    bound_name: str
    replicas: tuple[PlannedReplicas, ...]
    shares: tuple[TrafficShare, ...] = ()
    splits: tuple[PoolSplit, ...] = ()
    unmet: tuple[UnmetDemand, ...] = ()
    moves: tuple[Move, ...] = ()
    prices: tuple[ShadowPrice, ...] = ()
    ramps: tuple[VersionRamp, ...] = ()
    solver: str = ""
    solve_s: float = 0.0
    schema_version: int = PLAN_SCHEMA_VERSION

    @property
    def gap(self) -> float:
        """(bound − objective) / bound; 0 where the bound is 0."""
        return (self.bound - self.objective) / self.bound if self.bound > 0 else 0.0
