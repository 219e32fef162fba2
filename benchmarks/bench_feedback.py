"""Step responses of the feedback in the simulator: time to settle, overshoot, and Goodput with and without it.

One pool of three replicas, synthetic interactive and batch requests, Poisson arrivals. At ``STEP_S`` something
happens and at ``END_S`` it ends: the load doubles; a third of the replicas take twice as long; a burst comes while
every failure and refusal is tried again three times; most clients leave early. Each is run with every request sent
on arrival (``open``) and with SLOMax, each without and with the feedback.

*Settled*: seconds after the step until the admitted share stays within ``WITHIN`` of its mean over the last half
of the phase. *Overshoot*: how far it went below that mean, relative to it. *Recovery*: seconds after the end until
Goodput, smoothed over ``SMOOTH_S``, is back at ``RECOVERED`` of its value before; the rest of the run if never.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from data.catalog.load import load_catalog
from data.fleet.reference import reference_fleet
from data.fleet.types import Fleet
from data.types import FloatArray, IntArray, Outcome, Request
from planner.intervals import paired_relative_difference
from planner.sim.result import RunResult
from planner.sim.run import simulate
from planner.sim.settings import FailureEvent, SimSettings
from router.build import endpoint_specs
from router.endpoints import EndpointTable
from router.registry import make_policy
from router.slomax.context import FlowContext
from router.slomax.corrected import Corrected
from router.slomax.feedback import Feedback
from router.slomax.registry import flow_factory
from router.slomax.types import Admitted, Arrival, FlowControl, FlowStatus, Refused
from router.types import RouteRequest

Row = dict[str, Any]
STEP_S, END_S, LAST_S = 120.0, 300.0, 480.0
SMOOTH_S, WITHIN = 30.0, 0.1
RECOVERED = 0.95
KEEP_S = 1.0
"""Corrections are recorded this often."""
REPLICAS = 3
BASE_RATE = 14.0
"""Requests/s before the step: about 80 % of what the three replicas carry."""
FLOWS = ("open", "open+feedback", "slomax", "slomax+feedback")


@dataclass(frozen=True, slots=True)
class Response:
    """What happens.

    Attributes:
        name: For people.
        rates: (from, to, factor on the base rate), seconds; elsewhere 1.
        settings: Of the run.
        over_s: When it is over.
    """

    name: str
    rates: tuple[tuple[float, float, float], ...]
    settings: SimSettings = field(default_factory=SimSettings)
    over_s: float = END_S

    def rate(self, at_s: float) -> float:
        """Requests/s at a moment."""
        for since, until, factor in self.rates:
            if since <= at_s < until:
                return BASE_RATE * factor
        return BASE_RATE


SLOW = (FailureEvent(STEP_S, 0, "slow", END_S - STEP_S, 2.0),)
BURST_S = 60.0
RESPONSES = (
    Response("load_doubles", ((STEP_S, END_S, 2.0),)),
    Response("third_slows_down", (), SimSettings(failures=SLOW)),
    Response(
        "retry_storm",
        ((STEP_S, STEP_S + BURST_S, 2.0),),
        SimSettings(retries=3, failures=(FailureEvent(STEP_S, 0, "crash", BURST_S),)),
        STEP_S + BURST_S,
    ),
    Response("cancel_storm", ((STEP_S, END_S, 2.0),), SimSettings(cancel_share=0.6)),
)


class Open:
    """A flow control that sends every request on arrival."""

    name = "open"

    def __init__(self, context: FlowContext) -> None:
        self._context = context

    def offer(self, arrival: Arrival, now_s: float) -> Admitted | Refused:  # noqa: ARG002
        """Go, if there is anywhere to go."""
        rows: IntArray = self._context.candidates(arrival.request)
        if len(rows):
            return Admitted(rows)
        return Refused(self._context.reason(arrival.request), 503, 1.0)

    def cancel(self, ticket: int, now_s: float) -> bool:  # noqa: ARG002
        """Nobody ever waits."""
        return False

    def next(self, now_s: float) -> None:
        """Nobody ever waits."""

    def wakeup_s(self, now_s: float) -> float:  # noqa: ARG002
        """Never."""
        return float("inf")

    def dispatched(self, request: RouteRequest, endpoint: int, now_s: float) -> None:
        """Nothing to charge."""

    def first_token(self, request: RouteRequest, endpoint: int, now_s: float) -> None:
        """Nothing to charge."""

    def finished(self, request: RouteRequest, outcome: Outcome) -> None:
        """Nothing to release."""

    def abandoned(self, request: RouteRequest, now_s: float) -> None:
        """Nothing to release."""

    def endpoint_reset(self, endpoint: int) -> None:
        """Nothing to forget."""

    def set_quotas(self, quotas: Any, now_s: float) -> None:
        """Nothing is rationed."""

    def set_fleet(self, fleet: Fleet, now_s: float, again: Any) -> list[int]:  # noqa: ARG002
        """Nobody waits."""
        return []

    def status(self, now_s: float) -> FlowStatus:  # noqa: ARG002
        """Nothing waits."""
        return FlowStatus((), ())


@dataclass
class Recorder:
    """Makes the flow control of one run and keeps the admitted share of interactive requests over time."""

    flow: str
    shares: list[tuple[float, float]] = field(default_factory=list)

    def __call__(self, context: FlowContext) -> FlowControl:
        """The flow control."""
        name, _, fed = self.flow.partition("+")
        flow: FlowControl = Open(context) if name == "open" else flow_factory(name, {})(context)
        return _Recorded(context, flow, Feedback(now_s=context.now_s), self.shares) if fed else flow


class _Recorded(Corrected):
    """Keeps the share at each arrival."""

    def __init__(
        self, context: FlowContext, flow: FlowControl, feedback: Feedback, shares: list[tuple[float, float]]
    ) -> None:
        super().__init__(context, flow, feedback)
        self._shares = shares

    def offer(self, arrival: Arrival, now_s: float) -> Any:
        """As the other, and note the share now and then."""
        verdict = super().offer(arrival, now_s)
        if not self._shares or now_s >= self._shares[-1][0] + KEEP_S:
            key = arrival.request.model, "interactive"
            self._shares.append((now_s, self.feedback.corrections.admission.get(key, 1.0)))
        return verdict


def small_fleet() -> Fleet:
    """The reference pool with ``REPLICAS`` replicas."""
    fleet = reference_fleet("one-pool")
    return replace(fleet, placement=tuple(replace(one, replicas=REPLICAS) for one in fleet.placement))


def requests(response: Response, seed: int) -> Iterator[Request]:
    """Poisson arrivals at the rate of the moment, by thinning; a tenth is batch."""
    rng = np.random.default_rng([seed, 0xFEED])
    most = BASE_RATE * max([1.0, *(factor for _, _, factor in response.rates)])
    now_s, number = 0.0, 0
    while True:
        now_s += float(rng.exponential(1.0 / most))
        if now_s >= LAST_S:
            return
        kept, batch = float(rng.random()) < response.rate(now_s) / most, float(rng.random()) < 0.1
        prompt, output = (float(rng.lognormal(mean, 0.5)) for mean in (8.3, 5.3))
        if kept:
            tokens = max(int(output), 2)
            kind = "batch" if batch else "interactive"
            yield Request(number, now_s, max(int(prompt), 16), tokens, 2 * tokens, workload_class=kind)
            number += 1


def run(response: Response, flow: str, seed: int) -> tuple[RunResult, list[tuple[float, float]]]:
    """One run, and the admitted shares over time."""
    fleet = small_fleet()
    specs = endpoint_specs(fleet, load_catalog(), fleet.placement)
    table = EndpointTable(specs)
    policy = make_policy("tokenpilot", {}, table, seed, None)
    recorder = Recorder(flow)
    settings = replace(response.settings, seed=seed, timeline_s=1.0, time_limit_s=LAST_S + 60.0)
    result = simulate(fleet, specs, requests(response, seed), policy, settings, table=table, flow=recorder)
    return result, recorder.shares


def smoothed(result: RunResult) -> FloatArray:
    """Goodput in each second, averaged over the last ``SMOOTH_S``."""
    line = result.timeline
    width = max(int(SMOOTH_S / line.step_s), 1)
    cumulated = np.cumsum(np.concatenate([np.zeros(width), line.goodput_tokens_per_s]))
    means: FloatArray = (cumulated[width:] - cumulated[:-width]) / width
    return means[: int(LAST_S / line.step_s)]


def settled_s(shares: list[tuple[float, float]], until_s: float) -> float:
    """Seconds after the step from which on the share stays near its mean over the last half of the phase."""
    goal = _late_share(shares, until_s)
    outside = [at for at, share in shares if STEP_S <= at < until_s and abs(share - goal) > WITHIN]
    return max(outside) - STEP_S if outside else 0.0


def _late_share(shares: list[tuple[float, float]], until_s: float) -> float:
    middle = (STEP_S + until_s) / 2
    return float(np.mean([share for at, share in shares if middle <= at < until_s]))


def overshoot(shares: list[tuple[float, float]], until_s: float) -> float:
    """How far the share went below its mean in the last half of the phase; 0 if it did not."""
    lowest = min(share for at, share in shares if STEP_S <= at < until_s)
    goal = _late_share(shares, until_s)
    return max(goal - lowest, 0.0) / goal


def changes(shares: list[tuple[float, float]], since_s: float, until_s: float) -> int:
    """How often the share changed in a phase."""
    phase = [share for at, share in shares if since_s <= at < until_s]
    return int(np.count_nonzero(np.diff(phase)))


def recovery_s(values: FloatArray, over_s: float) -> float:
    """Seconds after the end until the smoothed Goodput is back at ``RECOVERED`` of its value before the step."""
    before = float(values[int(STEP_S / 2) : int(STEP_S)].mean())
    back = np.flatnonzero(values[int(over_s) :] >= RECOVERED * before)
    return float(back[0]) if len(back) else LAST_S - over_s


def response_rows(response: Response, seeds: range, flows: tuple[str, ...] = FLOWS) -> list[Row]:
    """Rows of one response."""
    runs = {flow: [run(response, flow, seed) for seed in seeds] for flow in flows}
    found: list[Row] = []
    for flow in flows:
        name = f"feedback/{response.name}/{flow}"
        lines = [smoothed(result) for result, _ in runs[flow]]
        phase = [float(line[int(STEP_S) : int(response.over_s)].mean()) for line in lines]
        met = [result.total.attainment_offered for result, _ in runs[flow]]
        found.append(_row(f"{name}/goodput", float(np.mean(phase)), "tokens/s", None, None))
        found.append(_row(f"{name}/attainment_offered", float(np.mean(met)), "share", None, None))
        back = max(recovery_s(line, response.over_s) for line in lines)
        storm = response.name == "retry_storm" and flow == "slomax+feedback"
        found.append(_row(f"{name}/recovery_s", back, "s", "<= 120 s" if storm else None, back <= 120.0))
        if flow.endswith("+feedback"):
            found += _feedback_rows(name, response, [shares for _, shares in runs[flow]])
    return found + _gains(response, runs)


def _feedback_rows(name: str, response: Response, shares: list[list[tuple[float, float]]]) -> list[Row]:
    settled = max(settled_s(one, response.over_s) for one in shares)
    over = max(overshoot(one, response.over_s) for one in shares)
    moved = max(changes(one, response.over_s - (response.over_s - STEP_S) / 2, response.over_s) for one in shares)
    idle = max(changes(one, 30.0, STEP_S) for one in shares)
    return [
        _row(f"{name}/settled_s", settled, "s", None, None),
        _row(f"{name}/overshoot", over, "relative", "<= 0.3", over <= 0.3),
        _row(f"{name}/changes_before_step", float(idle), "changes", "<= 2", idle <= 2),
        _row(f"{name}/changes_late_in_step", float(moved), "changes", None, None),
    ]


def _gains(response: Response, runs: dict[str, list[tuple[RunResult, list[tuple[float, float]]]]]) -> list[Row]:
    """Goodput over the whole run with the feedback against without, paired by seed."""
    goodput: Callable[[str], list[float]] = lambda flow: [  # noqa: E731
        result.total.goodput_tokens_per_s for result, _ in runs[flow]
    ]
    found = []
    for flow in ("open", "slomax"):
        if flow in runs and f"{flow}+feedback" in runs and len(runs[flow]) > 1:
            gain = paired_relative_difference(goodput(f"{flow}+feedback"), goodput(flow))
            row = _row(f"feedback/{response.name}/gain_over_{flow}", gain.mean, "relative", None, None)
            found.append({**row, "seeds": len(runs[flow]), "interval": [gain.low, gain.high]})
    return found


def _row(id_: str, value: float, unit: str, target: str | None, met: bool | None) -> Row:
    return {
        "id": id_,
        "area": "feedback",
        "value": value,
        "unit": unit,
        "reference": "-",
        "ratio": None,
        "target": target,
        "met": met if target is not None else None,
    }


def rows(quick: bool) -> list[Row]:
    """All rows; ``quick`` takes one seed, and SLOMax with the feedback alone."""
    seeds, flows = (range(1, 2), FLOWS[-1:]) if quick else (range(1, 6), FLOWS)
    return [row for response in RESPONSES for row in response_rows(response, seeds, flows)]


def main(argv: list[str] | None = None) -> None:
    """Print the rows of all responses or of the named ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="such as load_doubles; none = all")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--shares", action="store_true", help="print the admitted share over time instead")
    options = parser.parse_args(argv)
    chosen = [one for one in RESPONSES if not options.names or one.name in options.names]
    for response in chosen:
        if options.shares:
            for flow in FLOWS:
                result, shares = run(response, flow, 1)
                goodput = " ".join(f"{value:.0f}" for value in smoothed(result)[::15])
                print(response.name, flow, goodput, " ".join(f"{share:.2f}" for _, share in shares[::15]))
            continue
        for row in response_rows(response, range(1, 1 + options.seeds)):
            print(row)


if __name__ == "__main__":
    main()
