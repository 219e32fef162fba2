"""Plan rules about the order of moves: no pool is over-committed on the way, by the times that the plan states."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from data.fleet.types import Fleet
from data.plan import PlanDocument
from solver.violation import Violation


def order_violations(plan: PlanDocument, fleet: Fleet, before: Mapping[tuple[str, str], int]) -> list[Violation]:
    """Replays the moves at their moments; a plan that states none for some move is not checked.

    A start takes its GPUs when it begins, a drain gives its own back when it ends. Where more stands at first than
    a pool has, that much is allowed.

    Args:
        plan: The plan.
        fleet: Its fleet.
        before: Replicas of each (site, configuration) that stand now.
    """
    if not plan.moves or not all(move.begin_s for move in plan.moves):
        return []
    free = {(pool.site, pool.gpu_type): pool.count - pool.reserved_gpus for pool in fleet.pools}
    for (site, name), replicas in before.items():
        config = fleet.config(name)
        if (site, config.gpu_type) in free:
            free[site, config.gpu_type] -= replicas * config.tensor_parallel
    changes: dict[tuple[str, str], dict[float, int]] = defaultdict(lambda: defaultdict(int))
    for move in plan.moves:
        config = fleet.config(move.config)
        pool = (move.site, config.gpu_type)
        for begin_s in move.begin_s:
            if move.change > 0:
                changes[pool][begin_s] -= config.tensor_parallel
            else:
                changes[pool][begin_s + move.lasts_s] += config.tensor_parallel
    found: list[Violation] = []
    for pool, moments in sorted(changes.items()):
        left = max(free.get(pool, 0), 0)
        for moment in sorted(moments):
            left += moments[moment]
            if left < 0:
                detail = f"{-left} GPUs more than there are are taken {moment:g} s after the plan takes force"
                found.append(Violation("order", "/".join(pool), detail))
                break
    return found
