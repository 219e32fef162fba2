"""The plan document: what the planner decided, in one versioned JSON document.

``PlanDocument`` is the value; ``data.plan_io`` reads and writes it (strict, atomic) and publishes its JSON Schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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
    """Capacity split of one pool: replicas' worth and output tokens/s given to one class (and tenant quotas)."""

    site: str
    model: str
    gpu_type: str
    workload_class: str
    replicas: int
    tokens_per_s: float
    tenant_quota_tokens_per_s: dict[str, float]


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
    """One change against the running placement. ``cost`` is in value-weighted tokens."""

    site: str
    config: str
    change: int
    cost: float
    reason: str


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
    solver: str = ""
    solve_s: float = 0.0
    schema_version: int = PLAN_SCHEMA_VERSION

    @property
    def gap(self) -> float:
        """(bound − objective) / bound; 0 where the bound is 0."""
        return (self.bound - self.objective) / self.bound if self.bound > 0 else 0.0
