"""What changes from one plan to another: replicas, prewarmed copies, GPUs, traffic."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from data.plan import PlanDocument, PlannedReplicas, TrafficShare

LEAST_SHARE_CHANGE = 0.005
"""Smaller changes of a traffic share are not listed."""


@dataclass(frozen=True, slots=True)
class PlaceChange:
    """One (site, configuration) whose replicas or prewarmed copies differ; ``gpus`` is the change in GPUs."""

    site: str
    config: str
    replicas_before: int
    replicas_after: int
    prewarmed_before: int
    prewarmed_after: int
    gpus: int


@dataclass(frozen=True, slots=True)
class ShareChange:
    """One traffic share that differs."""

    model: str
    workload_class: str
    tenant: str
    origin: str
    site: str
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """All differences, sorted, and the totals of both plans."""

    old_id: str
    new_id: str
    places: tuple[PlaceChange, ...]
    shares: tuple[ShareChange, ...]
    gpus_before: int
    gpus_after: int
    objective_before: float
    objective_after: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data for machine output."""
        return asdict(self)


def plan_diff(old: PlanDocument, new: PlanDocument) -> PlanDiff:
    """The differences between two plans."""
    return PlanDiff(
        old.plan_id,
        new.plan_id,
        _places(old, new),
        _shares(old, new),
        _gpus(old),
        _gpus(new),
        old.objective,
        new.objective,
    )


def _gpus(plan: PlanDocument) -> int:
    return sum(row.replicas * row.gpus_per_replica for row in plan.replicas)


def _places(old: PlanDocument, new: PlanDocument) -> tuple[PlaceChange, ...]:
    before = {(row.site, row.config): row for row in old.replicas}
    after = {(row.site, row.config): row for row in new.replicas}
    changes: list[PlaceChange] = []
    for key in sorted(before.keys() | after.keys()):
        (n0, p0, g0), (n1, p1, g1) = _counts(before.get(key)), _counts(after.get(key))
        if (n0, p0) != (n1, p1):
            changes.append(PlaceChange(*key, n0, n1, p0, p1, g1 - g0))
    return tuple(changes)


def _counts(row: PlannedReplicas | None) -> tuple[int, int, int]:
    """Replicas, prewarmed copies and GPUs; zeros where the plan has no such place."""
    return (row.replicas, row.prewarmed, row.replicas * row.gpus_per_replica) if row else (0, 0, 0)


def _key(row: TrafficShare) -> tuple[str, str, str, str, str]:
    return row.model, row.workload_class, row.tenant, row.origin, row.site


def _shares(old: PlanDocument, new: PlanDocument) -> tuple[ShareChange, ...]:
    before = {_key(row): row.share for row in old.shares}
    after = {_key(row): row.share for row in new.shares}
    return tuple(
        ShareChange(*key, before.get(key, 0.0), after.get(key, 0.0))
        for key in sorted(before.keys() | after.keys())
        if abs(before.get(key, 0.0) - after.get(key, 0.0)) >= LEAST_SHARE_CHANGE
    )
