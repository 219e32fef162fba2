"""How long a dispatch may stay without a report before its lease ends by itself."""

from __future__ import annotations

from dataclasses import dataclass

from data.fleet.types import WorkloadClass
from router.policies.settings import Checked, above


@dataclass(frozen=True, slots=True)
class LeaseSettings(Checked):
    """Length of a lease; every report of a request starts it anew.

    Attributes:
        least_s: Shortest lease.
        default_s: For classes without a deadline and without a client's time limit.
        margin: Lease of the other classes, in deadlines (or client's time limits).
    """

    least_s: float = above(0.0, 30.0)
    default_s: float = above(0.0, 600.0)
    margin: float = above(1.0, 1.5)


def lease_s(kind: WorkloadClass, settings: LeaseSettings) -> float:
    """Seconds until a dispatch of this class is given up."""
    limits = [limit for limit in (kind.slo.deadline_s, kind.client_timeout_s) if limit is not None]
    if not limits:
        return max(settings.default_s, settings.least_s)
    return max(max(limits) * settings.margin, settings.least_s)
