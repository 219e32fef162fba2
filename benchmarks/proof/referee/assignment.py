"""Which request went to which endpoint and when it got there: what a run of the simulator chose."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from data.errors import SettingError, TraceError
from data.fleet.types import Fleet
from data.types import NO_PARENT, FloatArray, IntArray, Request, Slo, Status
from planner.arm import Arm
from planner.scenario import Scenario
from planner.sim.network import Network
from planner.sim.run import simulate
from router.endpoints import EndpointSpec, EndpointTable
from router.registry import make_policy


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One request on its way to the endpoint that was chosen for it.

    Attributes:
        request: As the trace tells it.
        endpoint: Row of the endpoint.
        at_engine_s: When its prompt reaches the engine.
        back_s: How long a token is under way to the client.
    """

    request: Request
    endpoint: int
    at_engine_s: float
    back_s: float

    @property
    def network_s(self) -> float:
        """What a client waits beyond the engine: for its dispatch, and for the way there and back."""
        return self.at_engine_s - self.request.arrival_s + self.back_s


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one run chose, and how its own simulator served it.

    Attributes:
        fleet: Its classes tell the targets.
        specs: The endpoints.
        dispatches: In order of arrival at the engines.
        times: Shape (dispatches, 2): TTFT and E2E from the arrival at the engine, seconds; NaN = not completed.
        cached: Prompt tokens of each that the engine found in its cache; 0 where it never got to it.
        hit_rate: Prompt tokens found in a cache over all prompt tokens.
        duration_s: Of the run, the drain at its end included.
        offered: Requests of the trace, those that were refused included.
    """

    fleet: Fleet
    specs: tuple[EndpointSpec, ...]
    dispatches: tuple[Dispatch, ...]
    times: FloatArray
    cached: IntArray
    hit_rate: float
    duration_s: float
    offered: int

    @property
    def targets(self) -> tuple[Slo, ...]:
        """Targets of each dispatched request."""
        known = {kind.name: kind.slo for kind in self.fleet.classes}
        first = self.fleet.classes[0].name
        return tuple(known[one.request.workload_class or first] for one in self.dispatches)

    def rows(self, endpoint: int) -> list[int]:
        """Rows of the dispatches to an endpoint, in order of arrival there."""
        return [row for row, one in enumerate(self.dispatches) if one.endpoint == endpoint]


@dataclass(slots=True)
class Choices:
    """A record sink that keeps where each request went, when, and how it ended."""

    decisions: dict[int, dict[str, Any]] = field(default_factory=dict)
    outcomes: dict[int, dict[str, Any]] = field(default_factory=dict)

    def decision(self, row: dict[str, Any]) -> None:
        """One request was sent or refused; without retries there is one decision a request."""
        self.decisions[row["request_id"]] = row

    def outcome(self, row: dict[str, Any]) -> None:
        """One request ended."""
        self.outcomes[row["request_id"]] = row


def assigned(scenario: Scenario, specs: Sequence[EndpointSpec], arm: Arm, seed: int) -> Assignment:
    """Run a policy on these endpoints and keep what it chose.

    Args:
        scenario: Fleet, trace and settings.
        specs: The endpoints; routers and engines go by their step times.
        arm: Its policy and settings.
        seed: Of arrivals, noise and the policy's own draws.

    Raises:
        SettingError: Clients try again.
        TraceError: A turn waits for the end of another. When it comes depends on how fast that one is served, so
            that its arrival would be the first simulator's doing.
    """
    if scenario.settings.retries:
        raise SettingError(
            "a request may be sent twice", field="retries", value=scenario.settings.retries, expected="0"
        )
    requests, choices = list(scenario.requests(seed)), Choices()
    if any(one.parent_id != NO_PARENT for one in requests):
        raise TraceError("a turn waits for another", source=scenario.trace.label, expected="an open loop")
    table, settings = EndpointTable(specs), replace(scenario.settings, seed=seed)
    policy = make_policy(arm.policy, arm.settings, table, seed)
    result = simulate(scenario.fleet, specs, requests, policy, settings, table=table, sink=choices)
    dispatches = _dispatches(scenario.fleet, specs, requests, choices)
    return Assignment(
        scenario.fleet,
        tuple(specs),
        dispatches,
        _times(dispatches, choices),
        _cached(dispatches, choices),
        float(result.total.hit_rate),
        result.duration_s,
        result.total.offered,
    )


def _dispatches(
    fleet: Fleet, specs: Sequence[EndpointSpec], requests: Sequence[Request], choices: Choices
) -> tuple[Dispatch, ...]:
    network, row_of = Network(fleet, specs), {spec.endpoint_id: row for row, spec in enumerate(specs)}
    found = []
    for request in requests:
        decision = choices.decisions[request.request_id]
        if decision.get("endpoint") is None:
            continue
        row, paths = row_of[decision["endpoint"]], network.paths(request.origin)
        at_engine_s = decision["decided_s"] + paths.sent_after_s(row, request.input_tokens)
        found.append(Dispatch(request, row, at_engine_s, paths.half_rtt_s[row]))
    return tuple(sorted(found, key=lambda one: one.at_engine_s))


def _times(dispatches: Sequence[Dispatch], choices: Choices) -> FloatArray:
    times = np.full((len(dispatches), 2), math.nan)
    for row, one in enumerate(dispatches):
        ended = choices.outcomes.get(one.request.request_id)
        if ended is not None and ended["status"] == int(Status.COMPLETED):
            times[row] = ended["ttft_s"], ended["e2e_s"]
    return times


def _cached(dispatches: Sequence[Dispatch], choices: Choices) -> IntArray:
    ended = (choices.outcomes.get(one.request.request_id, {}) for one in dispatches)
    return np.array([row.get("cached_tokens") or 0 for row in ended], dtype=np.int64)
