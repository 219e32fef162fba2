"""The most Goodput that any routing policy can reach with a placement and a trace."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from data.errors import SettingError, TraceError
from data.fleet.types import Fleet
from data.types import FloatArray, Request
from planner.bound.interval_rows import KindRows
from planner.bound.least_work import least_work
from planner.bound.offer import Offer, offer_of
from planner.bound.program import Priced, solve
from planner.bound.replica_kinds import replica_kinds
from planner.scenario import Scenario, carried_out
from planner.sim.settings import SimSettings
from router.endpoints import EndpointSpec


@dataclass(frozen=True, slots=True)
class GoodputBound:
    """What no policy exceeds.

    Attributes:
        offered_tokens: Output tokens of all requests.
        possible_tokens: Of those that an empty replica could serve well.
        good_tokens: Good output tokens, at most.
        goodput_tokens_per_s: Goodput, at most: the run lasts at least from the first arrival to the last, and no
            response is good before it can have ended.
        requests: Offered.
        priced: Intervals in which the fleet is too small, dearest first; empty = all that is possible fits.
        rows: Rows of the program at the end.
    """

    offered_tokens: int
    possible_tokens: int
    good_tokens: float
    goodput_tokens_per_s: float
    requests: int
    priced: tuple[Priced, ...]
    rows: int

    @property
    def share_of_offered(self) -> float:
        """Good tokens over offered ones, at most."""
        return self.good_tokens / self.offered_tokens if self.offered_tokens else 0.0


def scenario_bound(scenario: Scenario, seed: int, plan_path: str | None = None) -> GoodputBound:
    """The bound on what :meth:`Scenario.run` can give with this seed, whatever the arm on that placement.

    Raises:
        SettingError: The placement changes during the run, or a failure makes engines faster.
        TraceError: The trace is closed-loop, or holds no request.
    """
    carried = carried_out(scenario.fleet, plan_path)
    if carried.starts or carried.drains:
        raise SettingError("the placement changes", field="plan", value=plan_path, expected="one that stands")
    return goodput_bound(scenario.fleet, carried.specs, scenario.requests(seed), scenario.settings)


def goodput_bound(
    fleet: Fleet, specs: Sequence[EndpointSpec], requests: Iterable[Request], settings: SimSettings
) -> GoodputBound:
    """The bound for any policy, with or without refusals; see docs/bound.md for why it holds.

    Args:
        fleet: Classes, models and engine settings.
        specs: The replicas, all there from the start.
        requests: The trace, sorted by arrival.
        settings: Of the run; noise, time-outs and the time limit matter.

    Raises:
        SettingError: A failure makes engines faster.
        TraceError: The trace is closed-loop, or holds no request.
    """
    slow = [one.factor for one in settings.failures if one.kind == "slow"]
    slow += [one.factor for one in settings.site_failures if one.kind == "slow"]
    if min(slow, default=1.0) < 1.0:
        raise SettingError("engines get faster", field="factor", value=min(slow), expected="1 or more")
    offer = offer_of(fleet, requests, settings)
    if not len(offer):
        raise TraceError("holds no request", expected="at least one")
    kinds = replica_kinds(fleet, specs)
    works = [least_work(kind, offer, settings.step_noise) for kind in kinds]
    rows = [
        KindRows(at, kind, work, offer, settings.step_noise)
        for at, (kind, work) in enumerate(zip(kinds, works, strict=True))
    ]
    values = offer.output_tokens.astype(np.float64)
    solved = solve(values, rows)
    possible = np.logical_or.reduce([work.possible for work in works])
    end_s = np.minimum.reduce([np.where(work.possible, work.end_s, math.inf) for work in works])
    return GoodputBound(
        offered_tokens=int(offer.output_tokens.sum()),
        possible_tokens=int(offer.output_tokens[possible].sum()),
        good_tokens=solved.value,
        goodput_tokens_per_s=_rate(offer, end_s, solved.value, settings),
        requests=len(offer),
        priced=solved.priced,
        rows=solved.rows,
    )


def _rate(offer: Offer, end_s: FloatArray, good_tokens: float, settings: SimSettings) -> float:
    """Largest Goodput over the durations that a run may have.

    A run that lasts D has at most the tokens of the responses that can have ended by then, so that only the
    shortest duration and those ends need be tried.
    """
    start_s = float(offer.arrival_s[0])
    if settings.time_limit_s is not None:
        return good_tokens / max(settings.time_limit_s - start_s, 1e-9)
    shortest_s = max(float(offer.arrival_s[-1]) - start_s, 1e-9)
    order = np.argsort(end_s, kind="stable")
    ended_s, tokens = end_s[order] - start_s, np.cumsum(offer.output_tokens[order])
    at_shortest = float(np.sum(offer.output_tokens[end_s - start_s <= shortest_s]))
    later = (ended_s > shortest_s) & np.isfinite(ended_s)
    rates = np.minimum(good_tokens, tokens[later]) / ended_s[later]
    return float(max(min(good_tokens, at_shortest) / shortest_s, rates.max(initial=0.0)))
