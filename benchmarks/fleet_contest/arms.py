"""The arms: each turns forecasts, and what stands, into replicas for every window.

An arm plans every ``every`` windows for the windows until its next plan. It sees the forecasts that were made
at that moment and the demand of the windows before it, nothing later; only the clairvoyant sees what comes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from benchmarks.fleet_contest.demand import DAY, HOUR, STEP_S, TUNING_DAYS
from benchmarks.fleet_contest.setting import PLANNER, Contest
from data.types import FloatArray, IntArray
from planner.demand import LEVELS, MEDIAN
from planner.settings import PlannerSettings
from solver.linear import ModelSolver
from solver.placement import solve_placement
from solver.placement_rivals.instance_change import ChangeSettings, planned_instances, reactive_change
from solver.placement_rivals.regret_greedy import regret_greedy
from solver.placement_rivals.slice_cover import Limits, slice_cover
from solver.problem import PlacementProblem

Measure = Literal["mean", "peak"]
BATCH_CLASS = 0
"""Number of the class that can wait: classes are sorted by name."""
PRIORITY = (1, 0)
"""Of batch and interactive."""


@dataclass(slots=True)
class Moment:
    """What an arm sees when it plans.

    Attributes:
        contest: Everything shared.
        window: The next window.
        every: Windows until the next plan.
        running: Replicas that stand, shape (P,).
        solve: Solver of linear models.
    """

    contest: Contest
    window: int
    every: int
    running: IntArray
    solve: ModelSolver

    def forecast(self, measure: Measure, windows: int | None = None) -> FloatArray:
        """Quantiles of tokens/s until the next plan, or in so many windows, shape (commodities, levels)."""
        ahead = self.contest.quantiles[self.window, :, : windows or self.every]
        made: FloatArray = ahead.max(axis=1) if measure == "peak" else ahead.mean(axis=1)
        return made

    def seen(self, windows: int) -> FloatArray:
        """Demand of the last windows, shape (commodities, windows)."""
        past: FloatArray = self.contest.demand.tokens_per_s[:, self.window - windows : self.window]
        return past

    def place(self, tokens_per_s: FloatArray) -> IntArray:
        """The best placement for a demand that is certain."""
        problem = self.contest.certain(tokens_per_s, self.running)
        return solve_placement(problem, PLANNER.placement, solve=self.solve).replicas


Decide = Callable[[Moment], IntArray]


@dataclass(frozen=True, slots=True)
class Arm:
    """A rule with its settings.

    Attributes:
        name: Of the rule.
        setting: What was tried, in words.
        decide: The replicas from now on.
        every: Windows between two plans.
        between: A correction in the windows between.
    """

    name: str
    setting: str
    decide: Decide
    every: int = HOUR
    between: Decide | None = None


def carry_out(contest: Contest, arm: Arm, first: int, last: int, solve: ModelSolver) -> IntArray:
    """Replicas in each window from ``first`` up to ``last``, shape (windows, P)."""
    running = np.zeros(len(contest.price), dtype=np.int64)
    found = []
    for window in range(first, last):
        moment = Moment(contest, window, arm.every, running, solve)
        if (window - first) % arm.every == 0:
            running = arm.decide(moment)
        elif arm.between is not None:
            running = arm.between(moment)
        found.append(running)
    return np.array(found)


def static(factor: float) -> Arm:
    """The best single placement for ``factor`` times the mean of the first days."""

    def decide(moment: Moment) -> IntArray:
        if moment.running.any():
            return moment.running
        return moment.place(factor * moment.contest.demand.tokens_per_s[:, : TUNING_DAYS * DAY].mean(axis=1))

    return Arm("static", f"x{factor:g}", decide, DAY)


def yesterday(factor: float) -> Arm:
    """Each day the best placement for ``factor`` times each commodity's busiest hour of the day before."""

    def decide(moment: Moment) -> IntArray:
        past = moment.seen(DAY)
        hours = past.reshape(len(past), -1, HOUR).mean(axis=2)
        return moment.place(factor * hours.max(axis=1))

    return Arm("yesterday's peak", f"x{factor:g}", decide, DAY)


def regret(factor: float, every: int) -> Arm:
    """Greedy by regret on the median forecast."""

    def decide(moment: Moment) -> IntArray:
        wanted = factor * moment.forecast("mean")[:, MEDIAN]
        contest = moment.contest
        return regret_greedy(contest.certain(wanted, moment.running), contest.price, PRIORITY)

    return Arm("regret greedy", f"x{factor:g}, every {every * 10} min", decide, every)


def slices(factor: float, limits: Limits) -> Arm:
    """The cheapest mix of each model on the median forecast."""

    def decide(moment: Moment) -> IntArray:
        wanted = factor * moment.forecast("mean")[:, MEDIAN]
        contest = moment.contest
        return slice_cover(contest.certain(wanted, moment.running), contest.price, limits, moment.solve)

    return Arm("slice cover", f"x{factor:g}, {limits.value}", decide)


def instances(factor: float, settings: ChangeSettings) -> Arm:
    """Hourly change of instances for the peak of the median forecast, corrected by what was seen."""

    def decide(moment: Moment) -> IntArray:
        wanted = factor * moment.forecast("peak")[:, MEDIAN]
        contest = moment.contest
        problem = contest.certain(wanted, moment.running)
        return planned_instances(problem, contest.price, settings, moment.solve)

    def between(moment: Moment) -> IntArray:
        contest = moment.contest
        problem = contest.certain(moment.seen(1)[:, 0], moment.running)
        return reactive_change(problem, contest.price, moment.running, settings)

    name = "instance change" if settings.own_site else "instance change, routed"
    slow = f"batch {settings.slow_share:g}" + (", equal tokens" if settings.equal_tokens else "")
    return Arm(name, f"x{factor:g}, {slow}", decide, HOUR, between)


@dataclass(frozen=True, slots=True)
class OwnSettings:
    """How FleetMind's placement is set.

    Attributes:
        every: Windows between two plans.
        horizon: Windows that a plan is made for: a move must repay its load time in them.
        measure: Mean or busiest window of the forecast.
        plain: Every token is worth 1; otherwise worth is the planner's value policy.
        gpu_worth: Worth of a GPU left free, as a share of what the best placement makes of one.
        certain: Plan on the median alone, without segments.
        factor: On the forecast: the load ceiling plans a replica below what it can carry, and where GPUs are short
            that leaves room which a plan for less demand makes use of.
        planner: Settings of the planning step.
    """

    every: int = HOUR
    horizon: int = HOUR
    measure: Measure = "mean"
    plain: bool = True
    gpu_worth: float = 1e-3
    certain: bool = False
    factor: float = 1.0
    planner: PlannerSettings = field(default_factory=lambda: PLANNER)


def own(settings: OwnSettings, name: str = "FleetMind") -> Arm:
    """FleetMind's placement on the quantiles of the forecast, from what stands."""

    def decide(moment: Moment) -> IntArray:
        quantiles = moment.forecast(settings.measure, settings.horizon)
        if settings.certain:
            quantiles = np.repeat(quantiles[:, MEDIAN : MEDIAN + 1], len(LEVELS), axis=1)
        return _planned(moment, settings.factor * quantiles, settings)

    what = "median" if settings.certain else "segments"
    words = f"every {settings.every * 10} min for {settings.horizon * 10}, {what}, {settings.measure}"
    if settings.factor != 1.0:
        words = f"x{settings.factor:g}, {words}"
    if settings.gpu_worth != OwnSettings().gpu_worth:
        words += f", GPU {settings.gpu_worth:g}"
    return Arm(name, words, decide, settings.every)


def clairvoyant(every: int, factor: float = 1.0) -> Arm:
    """The same with ``factor`` times the demand that will come in place of a forecast."""
    settings = OwnSettings(every=every, horizon=every, factor=factor)

    def decide(moment: Moment) -> IntArray:
        ahead = factor * moment.contest.demand.tokens_per_s[:, moment.window : moment.window + every]
        problem = _problem(moment, np.repeat(ahead.mean(axis=1)[:, None], len(LEVELS), axis=1), settings)
        # Each window is a segment: the k-th smallest demand is reached in all but k of them.
        steps = np.sort(ahead, axis=1)
        width = np.diff(steps, axis=1, prepend=0.0)
        chance = 1.0 - np.arange(every) / every
        jobs = problem.commodities
        told = replace(jobs, width=width, value=jobs.weight[:, None] * chance)
        return _solved(moment, replace(problem, commodities=told), settings)

    return Arm("clairvoyant", f"every {every * 10} min", decide, every)


def _planned(moment: Moment, quantiles: FloatArray, settings: OwnSettings) -> IntArray:
    return _solved(moment, _problem(moment, quantiles, settings), settings)


def _problem(moment: Moment, quantiles: FloatArray, settings: OwnSettings) -> PlacementProblem:
    period = replace(settings.planner, period_s=STEP_S * settings.horizon)
    problem = moment.contest.planner_problem(quantiles, moment.running, period, settings.plain)
    return replace(problem, gpu_price=problem.gpu_price * settings.gpu_worth / 1e-3)


def _solved(moment: Moment, problem: PlacementProblem, settings: OwnSettings) -> IntArray:
    if not moment.running.any():
        # The first placement is there when the contest begins: it costs no start.
        places = replace(problem.placements, start_cost=np.zeros(len(problem.placements)))
        problem = replace(problem, placements=places)
    return solve_placement(problem, settings.planner.placement, solve=moment.solve).replicas
