"""What the feedback asks of the others: an immutable value, 1 wherever nothing is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PoolClass = tuple[str, str]
"""Pool and class."""
ClassTenant = tuple[str, str]
"""Class and tenant."""

ANY_CLASS = "*"
"""Stands for all classes of a tenant together."""


@dataclass(frozen=True, slots=True)
class Corrections:
    """Factors by name; a missing name means 1.

    Attributes:
        capacity: Factor on the planned rates F[n] of a pool for a class, for the next capacity split.
        admission: Share of what arrives for a pool and class that may be let in (0 to 1).
        repeats: Share of further attempts (after the first) that may be let in (0 to 1).
        debt: Factor, 1 or more, on a tenant's weight in a class and on its guarantee in the next split; class
            ``ANY_CLASS`` for a guarantee over all classes.
    """

    capacity: Mapping[PoolClass, float] = field(default_factory=dict)
    admission: Mapping[PoolClass, float] = field(default_factory=dict)
    repeats: Mapping[PoolClass, float] = field(default_factory=dict)
    debt: Mapping[ClassTenant, float] = field(default_factory=dict)

    def capacity_of(self, site: str, model: str, gpu_type: str, workload_class: str) -> float:
        """Factor on the rates of one pool of a plan: its own, else that of its model."""
        own = self.capacity.get((f"{site}/{model}/{gpu_type}", workload_class))
        return self.capacity.get((model, workload_class), 1.0) if own is None else own

    def debt_of(self, workload_class: str, tenant: str) -> float:
        """Factor of a tenant in a class: the larger of the class's own and that of all classes together."""
        return max(self.debt.get((kind, tenant), 1.0) for kind in (workload_class, ANY_CLASS))


NEUTRAL = Corrections()
"""Nothing is corrected."""
