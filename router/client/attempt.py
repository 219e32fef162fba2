"""One dispatched attempt, and the events that tell the router what became of it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from router.client.query import Placement, Refusal
from router.pb.v1 import router_pb2 as pb


class RefusedError(Exception):
    """The router gave no place; ``refusal`` says why."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"{refusal.reason}: {refusal.message}")
        self.refusal = refusal


class ReportBuffer:
    """Events that wait to be delivered, oldest first, bounded.

    Args:
        most: Events kept; beyond it the oldest are dropped and counted. A lost end is made good by the lease's
            own time limit.
    """

    def __init__(self, most: int) -> None:
        self._events: deque[pb.ReportEvent] = deque()
        self._most = most
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._events)

    def add(self, event: pb.ReportEvent) -> None:
        """Keep an event for delivery."""
        self._events.append(event)
        self._trim()

    def take(self) -> list[pb.ReportEvent]:
        """All events, for one delivery."""
        taken = list(self._events)
        self._events.clear()
        return taken

    def put_back(self, events: list[pb.ReportEvent]) -> None:
        """A delivery failed: its events come first again."""
        self._events.extendleft(reversed(events))
        self._trim()

    def _trim(self) -> None:
        while len(self._events) > self._most:
            self._events.popleft()
            self.dropped += 1


class Attempt:
    """A dispatch that ends exactly once: the first end counts, later ones are ignored.

    Args:
        placement: Where the request goes.
        send: Takes each event for delivery; must not block.
    """

    def __init__(self, placement: Placement, send: Callable[[pb.ReportEvent], None]) -> None:
        self.placement = placement
        self.ended = False
        self._send = send
        self._first = False

    def first_token(self, ttft_s: float | None = None) -> None:
        """The first token came; only the first notice counts. Without a time the router takes its own clock."""
        if not self._first and not self.ended:
            self._first = True
            self._send(pb.ReportEvent(lease_id=self.placement.lease_id, first_token=pb.FirstToken(ttft_s=ttft_s)))

    def finish(
        self,
        output_tokens: int,
        *,
        e2e_s: float | None = None,
        ttft_s: float | None = None,
        cached_tokens: int | None = None,
        preemptions: int = 0,
        finish_reason: str = "",
    ) -> None:
        """The engine ended normally.

        Args:
            output_tokens: Tokens generated; 0 needs a ``finish_reason``, else it counts as a failure.
            e2e_s: From dispatch to the last token as the caller saw it.
            ttft_s: The same to the first one, if ``first_token`` did not tell it.
            cached_tokens: What the engine says it reused of the prompt.
            preemptions: How often the engine put the request back.
            finish_reason: As the engine gives it, such as ``stop`` or ``length``.
        """
        finished = pb.Finished(
            output_tokens=output_tokens,
            e2e_s=e2e_s,
            ttft_s=ttft_s,
            cached_tokens=cached_tokens,
            preemptions=preemptions,
            finish_reason=finish_reason,
        )
        self._end(pb.ReportEvent(lease_id=self.placement.lease_id, finished=finished))

    def cancel(self, output_tokens: int = 0, *, timed_out: bool = False) -> None:
        """The client went away, or its own time limit ended the request."""
        cancelled = pb.Cancelled(output_tokens=output_tokens, timed_out=timed_out)
        self._end(pb.ReportEvent(lease_id=self.placement.lease_id, cancelled=cancelled))

    def fail(self, http_status: int = 0, output_tokens: int = 0, *, timed_out: bool = False) -> None:
        """The engine answered with an error, or not at all (status 0)."""
        error = pb.Error(http_status=http_status, output_tokens=output_tokens, timed_out=timed_out)
        self._end(pb.ReportEvent(lease_id=self.placement.lease_id, error=error))

    def end_by(self, error: BaseException | None) -> None:
        """End what its user left open, by the exception that ended the user's code.

        Leaving without a word is a cancel: the router must not take it for a success.
        """
        if error is None or isinstance(error, asyncio.CancelledError | GeneratorExit | KeyboardInterrupt):
            self.cancel()
        elif isinstance(error, TimeoutError):
            self.cancel(timed_out=True)
        else:
            self.fail()

    def _end(self, event: pb.ReportEvent) -> None:
        if not self.ended:
            self.ended = True
            self._send(event)
