"""The books of a run: what is counted and what is recorded when an attempt is decided and when it ends."""

from __future__ import annotations

import math

from data.outcome_sink import RecordSink
from data.types import Outcome, Status
from planner.sim.flight import Flight
from planner.sim.meter import Groups, Meter
from planner.sim.timeline import TimelineMeter
from router.core import Decision
from router.log_rows import decision_row, outcome_row
from router.types import FleetView, Policy, RouteRequest

Progress = tuple[int, int]
"""Tokens computed and tokens generated for an attempt."""


class Accounts:
    """Meter, timeline and log of one run.

    Args:
        meter: Counters.
        timeline: Good tokens over time.
        sink: Takes decision and outcome rows; ``None`` = nobody wants them, and none is built.
    """

    def __init__(self, meter: Meter, timeline: TimelineMeter, sink: RecordSink | None) -> None:
        self.meter = meter
        self._timeline = timeline
        self._sink = sink

    def offered(self, workload_class: str, tenant: str, tier: str) -> Groups:
        """A request arrives for the first time; gives the groups it counts in."""
        groups = self.meter.groups(workload_class, tenant, tier)
        for group in groups:
            group.offered += 1
        return groups

    def refused(self, route: RouteRequest, view: FleetView, policy: Policy) -> None:
        """No endpoint was eligible."""
        if self._sink is not None:
            self._sink.decision(decision_row(route, None, view, policy, 0, 0.0))

    def decided(self, route: RouteRequest, decision: Decision, policy: Policy) -> None:
        """An endpoint was chosen; its dispatch is not charged yet."""
        if self._sink is not None:
            view, hit_tokens = decision.view, decision.hit_tokens
            row = decision_row(route, decision.endpoint, view, policy, decision.candidates, hit_tokens)
            self._sink.decision(row)

    def attempt(
        self, flight: Flight, outcome: Outcome, engine_end_s: float, progress: Progress | None, again: bool
    ) -> None:
        """An attempt that was decided has ended.

        Args:
            flight: Still in the state of this attempt.
            outcome: How it ended.
            engine_end_s: When the engine had its last token; NaN = it did not complete.
            progress: What had been done for it when it was cancelled.
            again: The client will try again.
        """
        sequence = flight.sequence
        scheduled = sequence is not None and sequence.cached_tokens >= 0
        if self._sink is not None:
            end_s = outcome.finished_s if math.isnan(engine_end_s) else engine_end_s
            ttft_s = flight.engine_first_s - flight.delivered_s
            self._sink.outcome(outcome_row(outcome, ttft_s, end_s - flight.delivered_s, scheduled))
        if sequence is None or not scheduled:
            return
        self.meter.scheduled(flight.groups, outcome.input_tokens, outcome.cached_tokens)
        if outcome.status is Status.COMPLETED:
            computed = outcome.input_tokens + outcome.output_tokens
            met = flight.state.kind.slo.met(outcome.ttft_s, outcome.e2e_s, outcome.output_tokens)
        else:
            computed, met = sequence.computed if progress is None else progress[0], False
        tokens = max(computed - outcome.cached_tokens, 0)
        self.meter.wasted(flight.groups, outcome.status, tokens, sequence.recomputed_tokens, met, again)

    def completed(self, flight: Flight, outcome: Outcome) -> None:
        """A request completed."""
        flight.state.learn(outcome.output_tokens)
        good = self.meter.completed(flight.groups, flight.state.kind.slo, outcome)
        if good:
            self._timeline.good_tokens(outcome.finished_s, good)

    def gave_up(self, flight: Flight, status: Status) -> None:
        """A request ended without completing, and will not be tried again."""
        self.meter.gave_up(flight.groups, status)

    def repeated(self, flight: Flight) -> None:
        """A request will be tried again."""
        for group in flight.groups:
            group.repeats += 1


def outcome_of(now_s: float, flight: Flight, status: Status, reason: str, progress: Progress | None) -> Outcome:
    """How the flight's current attempt ended now, as clients see it: times count from the first arrival."""
    sequence = flight.sequence
    cached, tokens, preemptions = 0, 0, 0
    if sequence is not None:
        cached, preemptions = max(sequence.cached_tokens, 0), sequence.preemptions
        tokens = sequence.generated if progress is None else progress[1]
    return Outcome(
        request_id=flight.request.request_id,
        attempt=flight.attempt,
        status=status,
        workload_class=flight.state.kind.name,
        tenant=flight.tenant,
        endpoint=flight.endpoint,
        arrival_s=flight.arrival_s,
        finished_s=now_s,
        ttft_s=flight.first_s - flight.arrival_s,
        e2e_s=now_s - flight.arrival_s,
        input_tokens=flight.request.input_tokens,
        cached_tokens=cached,
        output_tokens=tokens,
        preemptions=preemptions,
        reason=str(reason),
    )
