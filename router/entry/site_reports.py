"""Outcomes on their way to one site's router: delivered at once while it can be reached, else kept for a while."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import grpc

from router.entry.settings import EntrySettings
from router.pb.v1 import router_pb2 as pb

KEEP = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED)
"""Statuses after which a later delivery may succeed. Events that arrived twice are unknown the second time."""
MOST_AT_ONCE = 500
Deliver = Callable[[Sequence[pb.ReportEvent], str], Awaitable[pb.ReportSummary]]


class HeldReports:
    """Events of one site that could not be delivered, oldest first, bounded in number and age.

    Args:
        settings: The bounds.
        clock: Seconds that only go forward.
    """

    def __init__(self, settings: EntrySettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._held: deque[tuple[float, str, pb.ReportEvent]] = deque()
        self.dropped = 0
        """Events given up: too old, too many, or refused. Their leases end by themselves."""

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, events: Sequence[pb.ReportEvent], owner: str) -> None:
        """Keep events of one caller; beyond the bound the oldest of all go."""
        until_s = self._clock() + self._settings.held_s
        self._held.extend((until_s, owner, event) for event in events)
        while len(self._held) > self._settings.held_reports:
            self._held.popleft()
            self.dropped += 1

    async def deliver(self, deliver: Deliver) -> None:
        """Try to deliver all that is held, in order; stops at the first failure.

        Args:
            deliver: Delivers events of one caller; its errors have a gRPC ``code``.
        """
        while self._held:
            batch = self._batch()
            if not batch:
                continue
            owner = batch[0][1]
            try:
                await deliver([event for _, _, event in batch], owner)
            except Exception as error:
                if getattr(error, "code", None) in KEEP:
                    self._held.extendleft(reversed(batch))
                    return
                self.dropped += len(batch)

    def _batch(self) -> list[tuple[float, str, pb.ReportEvent]]:
        """The oldest events, all of one caller; those whose time is over are dropped."""
        now_s = self._clock()
        batch: list[tuple[float, str, pb.ReportEvent]] = []
        while self._held and len(batch) < MOST_AT_ONCE:
            until_s, owner, _ = self._held[0]
            if until_s < now_s:
                self._held.popleft()
                self.dropped += 1
            elif batch and batch[0][1] != owner:
                break
            else:
                batch.append(self._held.popleft())
        return batch
