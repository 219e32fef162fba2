"""What a running router asks and tells the flow control in front of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from data.plan import PlanDocument
from data.types import IntArray
from router.pb.v1 import router_pb2 as pb
from router.serving.wire_request import Asked


@dataclass(frozen=True, slots=True)
class Clearance:
    """A request that a flow control lets through.

    Attributes:
        rows: It goes to one of these.
        arrived_s: First arrival; targets count from here.
        asked_s: Arrival of this attempt; the reply's ``queued_s`` counts from here.
    """

    rows: IntArray
    arrived_s: float
    asked_s: float


class FlowHooks(Protocol):
    """The flow control as the router's state sees it; see ``router.flow.flow_desk``."""

    def at_once(self, asked: pb.RouteRequest, read: Asked, owner: str) -> pb.RouteReply:
        """Answer a request that must not wait."""
        ...

    def tick(self) -> None:
        """Upkeep, a few times a second."""
        ...

    def endpoint_reset(self, row: int) -> None:
        """Another engine, or none, stands in a row."""
        ...

    def fleet_changed(self) -> None:
        """Another fleet file is in force."""
        ...

    def plan_changed(self, plan: PlanDocument) -> None:
        """Another plan is in force."""
        ...

    def close(self) -> None:
        """The router goes down: nobody may wait any more."""
        ...
