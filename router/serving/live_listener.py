"""Who is told what the router does: metrics, health and drift listen; none of them may hold it up."""

from __future__ import annotations

from typing import Protocol

from data.types import RefusalReason
from router.serving.attempt_end import AttemptEnd
from router.serving.open_leases import OpenLease


class LiveListener(Protocol):
    """Notices of one router, in order, on the thread that decides."""

    def placed(self, lease: OpenLease, site: str, degraded: tuple[str, ...], seconds: float) -> None:
        """A request was placed; the decision took ``seconds``."""
        ...

    def refused(self, reason: RefusalReason) -> None:
        """A request was refused."""
        ...

    def first_token(self, lease: OpenLease, now_s: float) -> None:
        """The first token of an attempt came."""
        ...

    def ended(self, lease: OpenLease, end: AttemptEnd, now_s: float) -> None:
        """An attempt ended, however; exactly once for each placement."""
        ...

    def unknown_lease(self) -> None:
        """A report came for a lease that is not open."""
        ...


class Listeners:
    """Several listeners as one."""

    def __init__(self, *listeners: LiveListener) -> None:
        self._listeners = listeners

    def add(self, listener: LiveListener) -> None:
        """One more, told last."""
        self._listeners += (listener,)

    def placed(self, lease: OpenLease, site: str, degraded: tuple[str, ...], seconds: float) -> None:
        """Tell all."""
        for listener in self._listeners:
            listener.placed(lease, site, degraded, seconds)

    def refused(self, reason: RefusalReason) -> None:
        """Tell all."""
        for listener in self._listeners:
            listener.refused(reason)

    def first_token(self, lease: OpenLease, now_s: float) -> None:
        """Tell all."""
        for listener in self._listeners:
            listener.first_token(lease, now_s)

    def ended(self, lease: OpenLease, end: AttemptEnd, now_s: float) -> None:
        """Tell all."""
        for listener in self._listeners:
            listener.ended(lease, end, now_s)

    def unknown_lease(self) -> None:
        """Tell all."""
        for listener in self._listeners:
            listener.unknown_lease()
