"""What the plan checker needs and what it reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from data.catalog.types import GpuType, ReplicaFacts

TOLERANCE = 1e-6
"""Relative slack of every comparison of rates, power and memory."""
CommodityKey = tuple[str, str, str, str]
"""Model, workload class, tenant, origin."""


class CatalogLookup(Protocol):
    """What the checker asks of a catalog; an unknown name raises."""

    def gpu(self, name: str) -> GpuType:
        """A GPU type."""
        ...

    def facts(self, catalog_model: str, gpu_type: str, tensor_parallel: int) -> ReplicaFacts:
        """What is known about one way to run a model."""
        ...


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """The rates that a plan was made for, as a certificate of the load rules.

    Attributes:
        demand: Output tokens/s of each commodity that its shares refer to.
        rates: (config, class) to SLO-feasible output tokens/s of one replica on that class alone (μ).
        loads: (site, config, class) to output tokens/s that the plan lets it carry.
    """

    demand: Mapping[CommodityKey, float] = field(default_factory=dict)
    rates: Mapping[tuple[str, str], float] = field(default_factory=dict)
    loads: Mapping[tuple[str, str, str], float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: which, where, and by how much."""

    rule: str
    where: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule} at {self.where}: {self.detail}"


def over_limit(
    used: Mapping[str, float], limits: Mapping[str, float | None], rule: str, unit: str
) -> list[Violation]:
    """One violation for each name whose use is above its limit; no limit, no violation."""
    found: list[Violation] = []
    for name, limit in limits.items():
        value = used.get(name, 0.0)
        if limit is not None and value > limit + TOLERANCE * (1 + limit):
            found.append(Violation(rule, name, f"{value:g} {unit} planned, {limit:g} allowed"))
    return found
