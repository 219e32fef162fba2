"""What clients do when things go wrong: they time out, cancel and try again.

Every draw depends on (seed, request id) alone, so that all policies meet the same clients.
"""

from __future__ import annotations

from collections import deque

from data.fleet.types import WorkloadClass
from data.types import RefusalReason, Request, Slo, Status
from planner.sim.events import EventQueue, Handler
from planner.sim.flight import Flight
from planner.sim.noise import uniform
from planner.sim.settings import SimSettings

CANCEL_HORIZON_S = 60.0
"""Patience of a client that cancels, at most, when its class has no target to measure it by."""
_CANCELS, _MOMENT = 2, 3
_FOR_GOOD = frozenset(
    {
        RefusalReason.CONTEXT_TOO_LONG,
        RefusalReason.NO_PERMITTED_SITE,
        RefusalReason.UNKNOWN_CLASS,
        RefusalReason.UNKNOWN_MODEL,
        RefusalReason.UNKNOWN_TENANT,
    }
)


class Clients:
    """The clients of one run.

    Args:
        settings: Time-out, share of cancels, retries and back-off.
    """

    def __init__(self, settings: SimSettings) -> None:
        self._settings = settings

    def timeout_s(self, kind: WorkloadClass) -> float | None:
        """A client cancels if it has no first token this long after its arrival; ``None`` = it waits."""
        own = self._settings.client_timeout_s
        return own if own is not None else kind.client_timeout_s

    def cancels_after_s(self, request: Request, slo: Slo) -> float | None:
        """When this client cancels of its own accord, seconds after its arrival; ``None`` = never.

        The moment is uniform over the longest response that would meet the class's targets.
        """
        settings = self._settings
        if settings.cancel_share == 0.0:
            return None
        if uniform(settings.seed, _CANCELS, request.request_id) >= settings.cancel_share:
            return None
        return uniform(settings.seed, _MOMENT, request.request_id) * longest_good_s(slo, request.output_tokens)

    def retry_after_s(self, attempt: int, status: Status, reason: str, hint_s: float = 0.0) -> float | None:
        """Back-off before the attempt after ``attempt`` (counted from 0); ``None`` = the client gives up.

        Only failures and refusals are tried again, and only refusals that another try could change. Nobody comes
        back before the hint of a refusal.
        """
        settings = self._settings
        if attempt >= settings.retries or reason in _FOR_GOOD:
            return None
        if status not in (Status.FAILED, Status.REJECTED):
            return None
        return max(float(settings.retry_backoff_s * 2**attempt), hint_s)


class Deadlines:
    """Time-outs of one class: all clients wait equally long, so their deadlines come in order of arrival.

    Only the first one stands in the event queue, and requests that have ended are dropped from the front, so that
    neither the queue nor memory holds one entry for every request of the last minutes.

    Args:
        timeout_s: How long each client waits.
        events: The queue of the run.
        on_due: Called with each flight that is still open at its deadline.
    """

    def __init__(self, timeout_s: float, events: EventQueue, on_due: Handler) -> None:
        self._timeout_s = timeout_s
        self._events = events
        self._on_due = on_due
        self._waiting: deque[tuple[float, Flight]] = deque()
        self._armed = False

    def watch(self, flight: Flight) -> None:
        """Call back at the deadline of a flight that arrives now."""
        self._waiting.append((flight.arrival_s + self._timeout_s, flight))
        self._drop_ended()
        self._arm()

    def _due(self, now_s: float, _: object) -> None:
        self._armed = False
        waiting = self._waiting
        while waiting and waiting[0][0] <= now_s:
            _, flight = waiting.popleft()
            if flight.open:
                self._on_due(now_s, flight)
        self._drop_ended()
        self._arm()

    def _drop_ended(self) -> None:
        waiting = self._waiting
        while waiting and not waiting[0][1].open:
            waiting.popleft()

    def _arm(self) -> None:
        if self._waiting and not self._armed:
            self._armed = True
            self._events.push(self._waiting[0][0], self._due, None)


def longest_good_s(slo: Slo, output_tokens: int) -> float:
    """Longest time in which a response of that length meets the targets; 60 s when none bounds it."""
    if slo.deadline_s is not None:
        return slo.deadline_s
    if slo.ttft_s is None and slo.tpot_s is None:
        return CANCEL_HORIZON_S
    return (slo.ttft_s or 0.0) + (slo.tpot_s or 0.0) * max(output_tokens - 1, 0)
