"""A request that waits in the router, and who is to be told."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from data.types import RefusalReason
from router.pb.v1 import router_pb2 as pb
from router.serving.wire_request import Asked, InvalidRequestError, RefusedError, WireReader
from router.slomax.refusals import LEAST_RETRY_S, STATUS
from router.slomax.types import Arrival, Refused
from router.types import RouteRequest

Answer = Callable[[pb.RouteReply | Exception], None]
"""Takes the reply of a request that waited, or the fault that kept it from one."""
Key = tuple[int, int]
"""Number of a request and its attempt."""


@dataclass(slots=True, eq=False)
class Waiter:
    """One request that waits.

    Attributes:
        tenant: Tenant that the caller is bound to, or empty.
        owner: The caller.
        arrived_s: First arrival of the request.
        asked_s: Arrival of this attempt.
        ttl_s: The caller's own bound on waiting, from ``asked_s``.
    """

    asked: pb.RouteRequest
    read: Asked
    tenant: str
    owner: str
    arrived_s: float
    asked_s: float
    ttl_s: float
    answer: Answer

    @property
    def request(self) -> RouteRequest:
        """The request as it reads now."""
        return self.read.request

    @property
    def key(self) -> Key:
        """Its name among all that wait."""
        return key_of(self.read.request)

    def read_anew(self, reader: WireReader) -> Refused | None:
        """Read the request again under another fleet file; gives why it has no place there, if it has none."""
        number = self.request.request_id
        try:
            read = reader.read(self.asked, self.tenant)
        except (RefusedError, InvalidRequestError) as error:
            reason = error.reason if isinstance(error, RefusedError) else RefusalReason.INVALID_REQUEST
            return Refused(reason, STATUS[reason], LEAST_RETRY_S)
        self.read = replace(read, request=replace(read.request, request_id=number))
        return None

    def arrival(self, again: bool = False) -> Arrival:
        """The same for a flow control; the time to live counts from the first arrival. ``again``: it was held."""
        before_s = self.asked_s - self.arrived_s
        ttl_s = None if self.ttl_s == math.inf else self.ttl_s + before_s
        return Arrival(self.request, self.arrived_s, ttl_s, again)


def key_of(request: RouteRequest) -> Key:
    """Name of an attempt among all that wait."""
    return request.request_id, request.attempt
