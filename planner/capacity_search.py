"""The largest rate that replicas sustain within a class's targets, by load tests of the simulated engine.

*What is measured.* Requests of the class arrive at rate ``λ`` at idle replicas; those that arrive after a warm-up
count. Requests that miss a target even on an idle replica say nothing about load and are left out. The
*attainment* is the share of the rest that meets every target; the *sustained rate* is where its mean over many
seeded tests falls to the percentile. Where a test is too short for a backlog to show against the longest target,
the rate is also at most the throughput of replicas that never run out of work.

*How.* A few seeds bracket the rate; more seeds, all with the same requests at two rates beside it, give the
crossing, by a straight line in probits, and its standard error. Seeds are added until that error is small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

import numpy as np

from models.capacity import GroupRate
from models.capacity_check import CHECKED_GROUP, CapacityCase, CheckedRate
from planner.load_tests import LoadTests, SearchSettings

LEAST_ALONE = 0.5
"""With fewer requests than this share within the targets on an idle replica the capacity is 0."""
BACKLOG_SPANS = 50.0
"""A test shorter than so many times the longest target does not show a slow backlog."""
BRACKET_SEEDS = 2
MOST_BRACKETS = 24
BESIDE = 0.06
"""The two rates beside the crossing lie this much below and above it."""
MOST_RECENTRED = 4


@dataclass(frozen=True, slots=True)
class SustainedRate:
    """Requests/s, its relative standard error, and the share of requests within the targets on an idle replica."""

    rate: float
    error: float
    met_alone: float


class Tests(Protocol):
    """Load tests of one case and group size, by seed."""

    @property
    def requests(self) -> int:
        """Requests of one test."""
        ...

    def attainment(self, seed: int, rate: float) -> float:
        """Share of the requests that count which meet the targets at this rate (requests/s)."""
        ...

    def throughput(self, seed: int) -> float:
        """Requests/s of replicas that never run out of work."""
        ...

    def met_alone(self, seed: int) -> float:
        """Share of the requests that meet the targets on an idle replica."""
        ...


def sustained_rate(
    case: CapacityCase, replicas: int, guess: float, settings: SearchSettings | None = None
) -> SustainedRate:
    """Measure the sustained rate of so many replicas together, in requests/s.

    Args:
        case: Replica, requests, targets. Prefix hits are not simulated.
        replicas: Replicas that share the load (1 or more).
        guess: Rate to start from; any positive number will do.
        settings: How thoroughly.
    """
    chosen = settings or SearchSettings()
    return search(LoadTests(case, replicas, chosen), case, guess, chosen)


def search(tests: Tests, case: CapacityCase, guess: float, chosen: SearchSettings) -> SustainedRate:
    """The sustained rate by any kind of load test; arguments as for ``sustained_rate``."""
    alone = float(np.mean([tests.met_alone(seed) for seed in range(BRACKET_SEEDS)]))
    if alone < LEAST_ALONE:
        return SustainedRate(0.0, 0.0, alone)
    most = float(np.mean([tests.throughput(seed) for seed in range(BRACKET_SEEDS)]))
    longest = max(case.slo.ttft_s or 0.0, case.slo.deadline_s or 0.0)
    hidden = tests.requests / most < BACKLOG_SPANS * longest or case.slo == type(case.slo)()
    if hidden:
        most, most_error = _throughput(tests, chosen)
        reached = np.mean([tests.attainment(seed, most) for seed in range(BRACKET_SEEDS)])
        if reached >= case.percentile:
            return SustainedRate(most, most_error, alone)
    start = _bracketed(tests, case.percentile, min(max(guess, 0.01 * most), most))
    if start <= 0.0:
        return SustainedRate(0.0, 0.0, alone)
    rate, error = _refined(tests, case.percentile, start, chosen)
    return SustainedRate(min(rate, most) if hidden else rate, error, alone)


def _throughput(tests: Tests, settings: SearchSettings) -> tuple[float, float]:
    """Requests/s of replicas that never run out of work, and its relative standard error.

    Times add up, rates do not: the mean is that of the time per request.
    """
    took: list[float] = []
    while True:
        took += [1.0 / tests.throughput(seed) for seed in range(len(took), len(took) + settings.seeds)]
        error = float(np.std(took, ddof=1) / math.sqrt(len(took)) / np.mean(took))
        if error <= settings.target_error or len(took) >= settings.most_seeds:
            return float(1.0 / np.mean(took)), error


def _bracketed(tests: Tests, percentile: float, guess: float) -> float:
    """The crossing to about 2 %, on a few seeds: steps outward, then regula falsi in probits of log rate."""

    def at(place: float) -> float:
        return float(np.mean([tests.attainment(seed, math.exp(place)) for seed in range(BRACKET_SEEDS)]))

    goal, place, step = _probit(percentile), math.log(guess), 0.2
    low: tuple[float, float] | None = None
    high: tuple[float, float] | None = None
    for _ in range(MOST_BRACKETS):
        reached = at(place)
        if reached >= percentile:
            low = (place, _probit(reached))
        else:
            high = (place, _probit(reached))
        if low is not None and high is not None:
            if high[0] - low[0] < 0.02:
                break
            share = (low[1] - goal) / max(low[1] - high[1], 1e-9)
            place = low[0] + min(max(share, 0.1), 0.9) * (high[0] - low[0])
        else:
            place += step if high is None else -step
            step *= 1.6
    return 0.0 if low is None else math.exp(low[0])


def _refined(tests: Tests, percentile: float, start: float, settings: SearchSettings) -> tuple[float, float]:
    """The crossing of the mean over seeds, and its relative standard error."""
    centre, count, moved, goal = start, settings.seeds, 0, _probit(percentile)
    density = math.exp(-goal * goal / 2.0) / math.sqrt(2.0 * math.pi)
    reached = np.empty((2, 0))
    while True:
        ends = np.log(centre) + np.array([-BESIDE, BESIDE])
        new = [[tests.attainment(seed, math.exp(end)) for seed in range(reached.shape[1], count)] for end in ends]
        reached = np.concatenate([reached, new], axis=1)
        means = reached.mean(axis=1)
        fall = _probit(means[0]) - _probit(means[1])
        if fall <= 1e-6:
            return centre, 1.0
        share = (_probit(means[0]) - goal) / fall
        if not -0.1 <= share <= 1.1 and moved < MOST_RECENTRED:
            centre *= math.exp(min(max(share - 0.5, -3.0), 3.0) * 2 * BESIDE)
            moved, reached = moved + 1, np.empty((2, 0))
            continue
        there = (1.0 - share) * reached[0] + share * reached[1]
        slope = density * fall / (2 * BESIDE)
        error = float(there.std(ddof=1) / math.sqrt(count) / slope)
        if error <= settings.target_error or count >= settings.most_seeds:
            return math.exp(ends[0] + share * 2 * BESIDE), error
        count = min(2 * count, settings.most_seeds)


def _probit(share: float) -> float:
    return NormalDist().inv_cdf(min(max(share, 1e-4), 1.0 - 1e-4))


def measure_case(case: CapacityCase, closed: GroupRate, settings: SearchSettings | None = None) -> CheckedRate:
    """Both sizes that a capacity check measures: one replica, and a group."""
    length = case.shape.output_tokens
    one = sustained_rate(case, 1, closed.of(1) / length, settings)
    if one.rate <= 0.0:
        return CheckedRate(0.0, 0.0, 0.0, 0.0, one.met_alone)
    group = sustained_rate(case, CHECKED_GROUP, 1.1 * CHECKED_GROUP * one.rate, settings)
    return CheckedRate(one.rate, group.rate, one.error, group.error, one.met_alone)
