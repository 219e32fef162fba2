"""Plans for demand that is not known: newsvendor segments against point forecasts, judged on sampled demand.

Random problems of (10 sites, 30 models) at load 0.8 without promises. The demand of a commodity is its median
times exp(N(0, 0.25)) common to its model times exp(N(0, 0.35)) of its own. Each plan sees only the distribution
of one commodity: its median, its median with 25 % on top, its 90 % quantile taken as certain, or its quantiles
as value segments, cut by the code that the planner uses. Then 24 demands are drawn, the same for all plans; the
flow relaxation with the plan's replicas fixed routes each of them as well as anything could. A token counts by
its worth (value) or as 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from data.types import FloatArray, IntArray
from planner.demand import spread_quantiles
from planner.intervals import paired_relative_difference
from planner.placement_jobs import value_segments
from solver.child import ChildSolver
from solver.instances import SEGMENT_WIDTH, InstanceSize, random_problem
from solver.linear import ModelSolver, SolveLimits
from solver.matrix import build_matrix
from solver.placement import solve_placement
from solver.problem import PlacementProblem
from solver.settings import PlacementSettings
from solver.solution import Origin, read_solution

MODEL_SPREAD, OWN_SPREAD = 0.25, 0.35
"""Standard deviations of log demand: common to a model, and a commodity's own."""
SPREAD = math.hypot(MODEL_SPREAD, OWN_SPREAD)
DRAWS = 24
LOAD = 0.8
SEEDS = (0, 1, 2, 3, 4)
SETTINGS = PlacementSettings(time_limit_s=20.0, mip_gap=0.005, hysteresis=0.0)
JUDGE_LIMIT_S = 30.0
TARGET = 0.03
Segments = tuple[FloatArray, FloatArray]
"""Widths of the segments over the median, and the chance that demand reaches each."""


def certain(factor: float) -> Segments:
    """Demand that is believed to be ``factor`` times the median."""
    return np.array([factor]), np.ones(1)


P90 = math.exp(SPREAD * NormalDist().inv_cdf(0.9))
PLANS: dict[str, Callable[[], Segments]] = {
    "median": lambda: certain(1.0),
    "median x 1.25": lambda: certain(1.25),
    "p90 as certain": lambda: certain(P90),
    "newsvendor": lambda: value_segments(spread_quantiles(1.0, SPREAD)),
}


@dataclass(frozen=True, slots=True)
class Judged:
    """What one plan made of the sampled demands: value and plain tokens/s of each draw, and GPUs that it uses."""

    value: FloatArray
    tokens_per_s: FloatArray
    gpus: int


def medians(problem: PlacementProblem) -> FloatArray:
    """Median demand of each commodity of a random problem, tokens/s."""
    rates: FloatArray = problem.commodities.width[:, 0] / SEGMENT_WIDTH[0]
    return rates


def with_segments(problem: PlacementProblem, median: FloatArray, segments: Segments) -> PlacementProblem:
    """The problem with the demand as these segments of every commodity's median."""
    width, chance = segments
    jobs = problem.commodities
    believed = replace(jobs, width=median[:, None] * width, value=jobs.weight[:, None] * chance)
    return replace(problem, commodities=believed)


def sampled_demand(problem: PlacementProblem, median: FloatArray, seed: int) -> FloatArray:
    """Demands that come true, tokens/s, shape (draws, commodities)."""
    rng = np.random.default_rng((seed, 5))
    shared = MODEL_SPREAD * rng.standard_normal((DRAWS, len(problem.models)))
    own = OWN_SPREAD * rng.standard_normal((DRAWS, len(median)))
    demand: FloatArray = median * np.exp(shared[:, problem.commodities.model] + own)
    return demand


def judge(problem: PlacementProblem, replicas: IntArray, demand: FloatArray, solve: ModelSolver) -> Judged:
    """Route each demand, shape (draws, commodities), as well as these replicas allow."""
    weight = problem.commodities.weight
    places = replace(problem.placements, start_cost=np.zeros(len(problem.placements)))
    values, tokens = np.zeros(len(demand)), np.zeros(len(demand))
    for draw, rates in enumerate(demand):
        jobs = replace(problem.commodities, width=rates[:, None], value=weight[:, None])
        true = replace(problem, placements=places, commodities=jobs, gpu_price=0.0)
        built = build_matrix(true)
        lower, upper = built.model.lower.copy(), built.model.upper.copy()
        lower[built.columns.replicas] = upper[built.columns.replicas] = replicas
        lower[built.columns.prewarmed] = upper[built.columns.prewarmed] = 0.0
        answer = solve(built.model.with_bounds(lower, upper), SolveLimits(JUDGE_LIMIT_S))
        served = read_solution(true, built, answer.values, Origin.SOLVER).served()
        values[draw], tokens[draw] = float(weight @ served), float(served.sum())
    return Judged(values, tokens, int(replicas @ problem.placements.gpus))


def measure(seed: int, solve: ModelSolver) -> dict[str, Judged]:
    """All plans for one random problem."""
    problem = random_problem(InstanceSize(10, 30, load=LOAD, promises=False), seed)
    median = medians(problem)
    demand = sampled_demand(problem, median, seed)
    found = {}
    for name, segments in PLANS.items():
        plan = solve_placement(with_segments(problem, median, segments()), SETTINGS, solve=solve)
        found[name] = judge(problem, plan.replicas, demand, solve)
    return found


def plan_row(name: str, found: list[dict[str, Judged]]) -> dict[str, Any]:
    """One plan over planning on the median, paired by problem; only the newsvendor has a target."""
    mine, base = [one[name] for one in found], [one["median"] for one in found]
    gain = paired_relative_difference([p.value.mean() for p in mine], [p.value.mean() for p in base])
    target = TARGET if name == "newsvendor" else None
    return {
        "id": f"fleet/forecast-error/{name.replace(' ', '-')}",
        "area": "fleet",
        "value": round(gain.mean, 4),
        "unit": "more value than planning on the median",
        "reference": "planning on the median",
        "ratio": round(1.0 + gain.mean, 4),
        "target": None if target is None else f">= {target:g}",
        "met": None if target is None else gain.mean >= target,
        "seeds": len(found),
        "interval": None
        if gain.half_width is None
        else [round(gain.mean + s * gain.half_width, 4) for s in (-1, 1)],
        "p10_value": _ratio(mine, base, lambda p: float(np.quantile(p.value, 0.1))),
        "tokens_per_s": _ratio(mine, base, lambda p: float(p.tokens_per_s.mean())),
        "gpus": _ratio(mine, base, lambda p: float(p.gpus)),
        "value_per_gpu": _ratio(mine, base, lambda p: float(p.value.mean()) / p.gpus),
    }


def _ratio(mine: list[Judged], base: list[Judged], of: Callable[[Judged], float]) -> float:
    return round(float(np.mean([of(a) / of(b) for a, b in zip(mine, base, strict=True)])), 4)


def rows(quick: bool) -> list[dict[str, Any]]:
    """One row a plan; ``quick`` uses one random problem in place of five."""
    with ChildSolver() as child:
        found = [measure(seed, child) for seed in (SEEDS[:1] if quick else SEEDS)]
    return [plan_row(name, found) for name in PLANS if name != "median"]
