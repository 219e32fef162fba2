"""What could have been reached with hindsight: a search over assignments that starts from a policy's own run.

The bound is an upper end; this is a lower one. Requests that missed a target, or long prompts beside them, are
sent to another replica, or refused; where the stretch of time around them gained good tokens the change is kept.
Each round is a run of the simulator, so whatever is found is a run that some policy could have made.

``python -m benchmarks.proof.hindsight --fleet one-pool --trace azure-code --speed 16`` prints a line every ten
rounds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.proof.scenarios import reported
from data.types import FloatArray, IntArray, Outcome, Status
from planner.arm import Arm
from planner.scenario import Scenario, carried_out
from planner.sim.run import simulate
from router.endpoints import EndpointTable
from router.registry import make_policy
from router.types import BoolArray, FleetView, Policy, RouteRequest

REFUSED = -1
OURS = Arm("tokenpilot", "tokenpilot")
MOVED = (0.1, 0.3, 0.6)
"""Shares of the misses that a round changes."""
REFUSALS = 0.1
NEAR_S = 2.0
"""Prompts that come so near to a miss, at the same replica, are moved in its place."""


class Replay:
    """A policy whose choices are given, or those of another one, with what became of each request."""

    name = "replay"

    def __init__(self, search: Search, inner: Policy, assigned: IntArray | None) -> None:
        self._search, self._inner, self._assigned = search, inner, assigned
        self.good = np.zeros(len(search.requests), dtype=bool)
        self.chosen = np.full(len(search.requests), REFUSED, dtype=np.int64)

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:
        """As assigned, or as the other policy chooses."""
        place = self._search.place[request.request_id]
        given = self._assigned
        row = self._inner.choose(request, candidates, view) if given is None else int(given[place])
        self.chosen[place] = row
        return row

    def dispatched(self, request: RouteRequest, endpoint: int, view: FleetView) -> None:
        """Passed on."""
        self._inner.dispatched(request, endpoint, view)

    def first_token(self, request: RouteRequest, endpoint: int, now_s: float, ttft_s: float) -> None:
        """Passed on."""
        self._inner.first_token(request, endpoint, now_s, ttft_s)

    def finished(self, request: RouteRequest, outcome: Outcome) -> None:
        """Note whether the targets were met."""
        met = request.slo.met(outcome.ttft_s, outcome.e2e_s, outcome.output_tokens)
        self.good[self._search.place[request.request_id]] = outcome.status is Status.COMPLETED and met
        self._inner.finished(request, outcome)

    def endpoint_reset(self, endpoint: int) -> None:
        """Passed on."""
        self._inner.endpoint_reset(endpoint)


@dataclass(frozen=True, slots=True)
class Found:
    """Best run so far: rounds made, good tokens over offered ones, and requests that it refuses."""

    rounds: int
    share: float
    refused: int


class Search:
    """Assignments of one scenario and seed.

    Args:
        scenario: Without closed-loop turns; its placement stands.
        seed: Of the run and of the search.
        window_s: Changes are judged over stretches of twice this length.
    """

    def __init__(self, scenario: Scenario, seed: int, window_s: float) -> None:
        self._scenario = replace(scenario, settings=replace(scenario.settings, seed=seed))
        self._seed, self._window_s = seed, window_s
        self._specs = carried_out(scenario.fleet, None).specs
        self._random = np.random.default_rng(seed)
        self.requests = list(scenario.requests(seed))
        self.place = {request.request_id: at for at, request in enumerate(self.requests)}
        self._arrival_s = np.array([request.arrival_s for request in self.requests])
        self._output: FloatArray = np.array([float(request.output_tokens) for request in self.requests])
        self._input: FloatArray = np.array([float(request.input_tokens) for request in self.requests])

    def run(self, arm: Arm, assigned: IntArray | None = None) -> Replay:
        """One run: the arm's own, or one in which the requests go where they are assigned."""
        table = EndpointTable(self._specs)
        policy = Replay(self, make_policy(arm.policy, arm.settings, table, self._seed), assigned)
        kept = self.requests if assigned is None else [
            request for request, row in zip(self.requests, assigned.tolist(), strict=True) if row != REFUSED
        ]  # fmt: skip
        simulate(self._scenario.fleet, self._specs, kept, policy, self._scenario.settings, table=table)
        return policy

    def improve(self, start: Arm, rounds: int) -> Iterator[Found]:
        """The start, then the best after each round."""
        plain = Arm("round_robin", "round_robin")
        first = self.run(start)
        assigned, good = first.chosen, first.good
        for number in range(rounds + 1):
            whole = float(self._output.sum())
            yield Found(number, float(self._output[good].sum()) / whole, int((assigned == REFUSED).sum()))
            stretch = np.floor((self._arrival_s + self._random.uniform(0, 2 * self._window_s)) / self._window_s)
            changed = self._changed(assigned, ~good & (stretch % 2 == 0))
            gain = self._output * (self.run(plain, changed).good.astype(np.float64) - good)
            pair = (stretch // 2).astype(np.int64) - int(stretch.min() // 2)
            mixed = np.where(np.bincount(pair, weights=gain)[pair] > 0, changed, assigned)
            reached = self.run(plain, mixed).good
            if self._output[reached].sum() > self._output[good].sum():
                assigned, good = mixed, reached

    def _changed(self, assigned: IntArray, missed: BoolArray) -> IntArray:
        changed, random = assigned.copy(), self._random
        share = float(random.choice(MOVED))
        for at in np.flatnonzero(missed & (random.random(len(missed)) < share)).tolist():
            if assigned[at] != REFUSED and random.random() < REFUSALS:
                changed[at] = REFUSED
                continue
            near = np.abs(self._arrival_s - self._arrival_s[at]) < NEAR_S
            beside = np.flatnonzero(near & (assigned == assigned[at]))
            longest = int(beside[np.argmax(self._input[beside] * random.random(len(beside)))])
            changed[at if random.random() < 0.5 else longest] = int(random.integers(len(self._specs)))
        return changed


def main() -> None:
    """Search and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleet", default="one-pool")
    parser.add_argument("--trace", default="azure-code")
    parser.add_argument("--speed", type=float, required=True)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--window-s", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    scenario = reported(options.fleet, options.trace).at_speed(options.speed)
    search = Search(scenario, options.seed, options.window_s)
    for found in search.improve(OURS, options.rounds):
        if found.rounds % 10 == 0:
            print(f"{found.rounds} rounds: {found.share:.2%} of offered tokens good, {found.refused} refused")


if __name__ == "__main__":
    main()
