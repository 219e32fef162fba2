"""A flow control that passes everything on to another one behind it; what stands in front changes a part."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from data.fleet.types import Fleet
from data.types import Outcome
from router.slomax.types import Arrival, Dropped, FlowControl, FlowStatus, PaysDebts, Ready, Verdict
from router.types import RouteRequest


class Passing:
    """See the module; see ``router.slomax.types.FlowControl`` for the methods.

    Args:
        flow: Behind this one.
    """

    def __init__(self, flow: FlowControl) -> None:
        self.flow = flow

    @property
    def name(self) -> str:
        """As the flow control behind."""
        return self.flow.name

    def offer(self, arrival: Arrival, now_s: float) -> Verdict:
        """As the flow control behind."""
        return self.flow.offer(arrival, now_s)

    def cancel(self, ticket: int, now_s: float) -> bool:
        """As the flow control behind."""
        return self.flow.cancel(ticket, now_s)

    def next(self, now_s: float) -> Ready | Dropped | None:
        """As the flow control behind."""
        return self.flow.next(now_s)

    def wakeup_s(self, now_s: float) -> float:
        """As the flow control behind."""
        return self.flow.wakeup_s(now_s)

    def dispatched(self, request: RouteRequest, endpoint: int, now_s: float) -> None:
        """As the flow control behind."""
        self.flow.dispatched(request, endpoint, now_s)

    def first_token(self, request: RouteRequest, endpoint: int, now_s: float) -> None:
        """As the flow control behind."""
        self.flow.first_token(request, endpoint, now_s)

    def finished(self, request: RouteRequest, outcome: Outcome) -> None:
        """As the flow control behind."""
        self.flow.finished(request, outcome)

    def abandoned(self, request: RouteRequest, now_s: float) -> None:
        """As the flow control behind."""
        self.flow.abandoned(request, now_s)

    def endpoint_reset(self, endpoint: int) -> None:
        """As the flow control behind."""
        self.flow.endpoint_reset(endpoint)

    def set_quotas(self, quotas: Mapping[tuple[str, str], float], now_s: float) -> None:
        """As the flow control behind."""
        self.flow.set_quotas(quotas, now_s)

    def set_fleet(
        self, fleet: Fleet, now_s: float, again: Callable[[RouteRequest], RouteRequest | None]
    ) -> list[int]:
        """As the flow control behind."""
        return self.flow.set_fleet(fleet, now_s, again)

    def status(self, now_s: float) -> FlowStatus:
        """As the flow control behind."""
        return self.flow.status(now_s)

    def set_debts(self, factor: Callable[[str, str], float]) -> None:
        """As the flow control behind, if it shares by weight."""
        if isinstance(self.flow, PaysDebts):
            self.flow.set_debts(factor)
