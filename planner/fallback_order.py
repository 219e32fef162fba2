"""An order for the moves between two placements of which only the fleet is known: no demand, no worth."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping

from data.fleet.types import Fleet
from solver.move_order_greedy import greedy_order
from solver.move_order_problem import MoveAction, MoveProblem

Place = tuple[str, str]
DRAIN_S = 30
"""Expected time of a drain."""
PARALLEL_LOADS = 4


def greedy_moments(
    fleet: Fleet, load_s: Callable[[Place], float], standing: Mapping[Place, int], change: Mapping[Place, int]
) -> list[tuple[Place, bool, int, int]]:
    """(place, whether it starts, when it begins, how long it lasts) of each replica that changes, in seconds.

    Args:
        fleet: The fleet.
        load_s: Load time of a replica of a place, s.
        standing: Replicas of each place before.
        change: Replicas that start or drain at each place.
    """
    problem, places, _ = fallback_problem(fleet, load_s, standing, change)
    begin = greedy_order(problem).begin_s
    return [
        (place, action.start, moment, action.lasts_s)
        for place, action, moment in zip(places, problem.actions, begin, strict=True)
    ]


def fallback_problem(
    fleet: Fleet, load_s: Callable[[Place], float], standing: Mapping[Place, int], change: Mapping[Place, int]
) -> tuple[MoveProblem, list[Place], list[str]]:
    """The moves as a problem, the place of each, and the names of the models.

    A replica's capacity and worth are its GPUs; every model keeps what it has both before and after.
    """
    models = sorted({fleet.config(name).model for _, name in standing.keys() | change.keys()})
    pools = sorted({(site, fleet.config(name).gpu_type) for site, name in standing.keys() | change.keys()})
    sites = sorted({site for site, _ in pools})
    free: Counter[tuple[str, str]] = Counter()
    free.update({(pool.site, pool.gpu_type): pool.count - pool.reserved_gpus for pool in fleet.pools})
    before, after = Counter[str](), Counter[str]()
    for (site, name), count in standing.items():
        config = fleet.config(name)
        free[site, config.gpu_type] -= count * config.tensor_parallel
        before[config.model] += count * config.tensor_parallel
    after.update(before)
    actions: list[MoveAction] = []
    places: list[Place] = []
    for place, count in sorted(change.items()):
        config = fleet.config(place[1])
        gpus = config.tensor_parallel
        after[config.model] += count * gpus
        pool, model = pools.index((place[0], config.gpu_type)), models.index(config.model)
        lasts_s = math.ceil(load_s(place)) if count > 0 else DRAIN_S
        action = MoveAction(count > 0, pool, sites.index(place[0]), model, gpus, lasts_s, gpus, float(gpus))
        actions += [action] * abs(count)
        places += [place] * abs(count)
    problem = MoveProblem(
        tuple(actions),
        tuple(_free(free[pool], pool, pools, actions) for pool in pools),
        (PARALLEL_LOADS,) * len(sites),
        tuple(before[model] for model in models),
        tuple(min(before[model], after[model]) for model in models),
    )
    return problem, places, models


def _free(free: int, pool: tuple[str, str], pools: list[tuple[str, str]], actions: list[MoveAction]) -> int:
    """Free GPUs of a pool; a plan that needs more than there are is ordered as if they were there."""
    mine = [action for action in actions if pools[action.pool] == pool]
    short = sum(action.gpus if action.start else -action.gpus for action in mine)
    return max(free, short, 0)
