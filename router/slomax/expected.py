"""What a plan and the fleet's promises let the feedback expect."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from data.fleet.types import Fleet
from data.plan import PoolSplit
from router.slomax.corrections import ANY_CLASS, ClassTenant, PoolClass
from router.slomax.feedback import Expected


def expected_of(fleet: Fleet, splits: Iterable[PoolSplit], share: float = 1.0) -> Expected:
    """Planned rates by (model, class) and guaranteed ones by (class, tenant).

    Args:
        fleet: Its tenants' promises of tokens/s; one without a class holds for all classes together.
        splits: Of the running plan; pools of the same model add up. The correction that a row was made with is
            taken out again: measured Goodput is compared with the uncorrected table, else a factor would be
            learned on top of itself.
        share: Share of the traffic that this router sees (above 0, at most 1); 1/n with n routers.
    """
    planned: dict[PoolClass, float] = defaultdict(float)
    for row in splits:
        planned[row.model, row.workload_class] += share * row.tokens_per_s / row.correction
    guarantees: dict[ClassTenant, float] = defaultdict(float)
    for tenant in fleet.tenants:
        for promise in tenant.reservations:
            if promise.tokens_per_s > 0:
                guarantees[promise.workload_class or ANY_CLASS, tenant.name] += share * promise.tokens_per_s
    return Expected(dict(planned), dict(guarantees))
