"""What the feedback asks of the others: an immutable value, 1 wherever nothing is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PoolClass = tuple[str, str]
"""Pool and class."""
ClassTenant = tuple[str, str]
"""Class and tenant."""


@dataclass(frozen=True, slots=True)
class Corrections:
    """Factors by name; a missing name means 1.

    Attributes:
        capacity: Factor on the planned rates F[n] of a pool for a class, for the next capacity split.
        admission: Share of what arrives for a pool and class that may be let in (0 to 1).
        repeats: Share of further attempts (after the first) that may be let in (0 to 1).
        debt: Factor, 1 or more, on a tenant's weight in a class and on its guarantee in the next split.
    """

    capacity: Mapping[PoolClass, float] = field(default_factory=dict)
    admission: Mapping[PoolClass, float] = field(default_factory=dict)
    repeats: Mapping[PoolClass, float] = field(default_factory=dict)
    debt: Mapping[ClassTenant, float] = field(default_factory=dict)


NEUTRAL = Corrections()
"""Nothing is corrected."""
