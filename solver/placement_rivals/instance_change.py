"""Replicas by a rule like SageServe's: each hour the cheapest change of instances that carries the forecast peak.

One integer program over all models, sites and GPU types: instances cost, starts cost, and the capacity that may
serve a demand must carry its forecast peak; of the slow classes only a share is planned for. Where the GPUs do
not suffice the original has no answer; here what is missed costs far more than any instance. Between two solves
a reactive rule follows what was seen: ``reactive_change``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from data.errors import SettingError
from data.types import FloatArray, IntArray
from solver.linear import ModelSolver
from solver.placement_rivals.cheapest_cover import CoverCosts, cheapest_cover
from solver.placement_rivals.need import demand, free_gpus, replicas_per_token
from solver.problem import PlacementProblem


@dataclass(frozen=True, slots=True)
class ChangeSettings:
    """How the rule is set.

    Attributes:
        slow_classes: Numbers of the classes that can wait.
        slow_share: Share of their demand that is planned for (0 to 1).
        start_share: Cost of a start, as a share of an hour of the instance (0 or more).
        equal_tokens: See ``CoverCosts``.
        own_site: Demand is covered at the site where it arises, wherever something there can serve it, as the
            original does; otherwise at any site that may serve it.
        high, low: Use of a model's capacity above which one instance is started, and below which one is stopped
            (0 to 1, ``low`` below ``high``).
    """

    slow_classes: tuple[int, ...] = ()
    slow_share: float = 0.1
    start_share: float = 0.1
    equal_tokens: bool = False
    own_site: bool = True
    high: float = 0.9
    low: float = 0.3

    def __post_init__(self) -> None:
        checks = (
            ("slow_share", 0 <= self.slow_share <= 1, "0 to 1"),
            ("start_share", self.start_share >= 0, "0 or more"),
            ("low", 0 <= self.low < self.high <= 1, "0 to 1, below high"),
        )
        for name, ok, expected in checks:
            if not ok:
                raise SettingError(
                    "setting out of range", field=name, value=getattr(self, name), expected=expected
                )


def planned_instances(
    problem: PlacementProblem, price: FloatArray, settings: ChangeSettings, solve: ModelSolver
) -> IntArray:
    """Replicas of the next hour; the demand of the problem is the forecast peak, ``price`` that of a replica."""
    wanted = demand(problem)
    wanted[np.isin(problem.commodities.workload_class, settings.slow_classes)] *= settings.slow_share
    costs = CoverCosts(price, settings.start_share * price, settings.equal_tokens)
    if settings.own_site:
        problem = at_own_sites(problem)
    return cheapest_cover(problem, wanted, problem.pools.gpus, costs, solve)


def at_own_sites(problem: PlacementProblem) -> PlacementProblem:
    """The same with every commodity allowed only where it arises, if some place there can serve it."""
    jobs, places = problem.commodities, problem.placements
    here = jobs.allowed & (jobs.entering == 0)
    able = np.zeros((len(problem.models), len(problem.classes), len(problem.sites.names)), dtype=bool)
    for c in range(len(problem.classes)):
        np.logical_or.at(able[:, c], (places.model, places.site), places.rate[:, c] > 0)
    here &= able[jobs.model, jobs.workload_class]
    allowed = np.where(here.any(axis=1)[:, None], here, jobs.allowed)
    return replace(problem, commodities=replace(jobs, allowed=allowed))


def reactive_change(
    problem: PlacementProblem, price: FloatArray, replicas: IntArray, settings: ChangeSettings
) -> IntArray:
    """One instance more or less of each model, by how much of its capacity the demand of the problem uses.

    Use = replicas that the demand takes at the model's mean rate / replicas. Started is the cheapest instance
    for a token whose GPUs are free, stopped the dearest.
    """
    places, jobs = problem.placements, problem.commodities
    changed = replicas.copy()
    wanted, need = demand(problem), replicas_per_token(problem)
    for model in range(len(problem.models)):
        mine = np.flatnonzero((jobs.model == model) & (wanted > 0))
        usable = np.isfinite(need[mine]).any(axis=0) if len(mine) else places.model == model
        capacity = _tokens_of_one(need[mine], wanted[mine]) if len(mine) else places.mix_rate
        held = float((changed * np.where(usable, capacity, 0.0)).sum())
        use = float(wanted[mine].sum()) / held if held > 0 else math.inf if len(mine) else 0.0
        cost = np.where(usable & (capacity > 0), price / np.maximum(capacity, 1e-12), np.inf)
        if use > settings.high:
            fits = places.gpus <= free_gpus(problem, changed)[places.pool]
            best = int(np.argmin(np.where(fits, cost, np.inf)))
            changed[best] += bool(fits[best] and np.isfinite(cost[best]))
        elif use < settings.low:
            stands = np.where((places.model == model) & (changed > 0), price / np.maximum(capacity, 1e-12), -1.0)
            worst = int(np.argmax(stands))
            changed[worst] -= bool(stands[worst] >= 0)
    return changed


def _tokens_of_one(need: FloatArray, wanted: FloatArray) -> FloatArray:
    """Shape (P,): tokens/s of one replica on the mix of demands that may run there."""
    may = np.isfinite(need)
    tokens = np.where(may, wanted[:, None], 0.0)
    taken = np.where(may, wanted[:, None] * np.where(may, need, 0.0), 0.0).sum(axis=0)
    mixed: FloatArray = np.where(taken > 0, tokens.sum(axis=0) / np.maximum(taken, 1e-12), 0.0)
    return mixed
