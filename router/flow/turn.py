"""The wait of one call for its turn, on the event loop; a call that ends leaves the queue at once."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from router.flow.flow_desk import FlowDesk
from router.pb.v1 import router_pb2 as pb
from router.serving.call_gate import CallGate


class Turn:
    """Asks a flow control and waits for its answer.

    Args:
        desk: The flow control.
        waiting: Counts the calls that wait, and bounds them.
    """

    def __init__(self, desk: FlowDesk, waiting: CallGate) -> None:
        self._desk = desk
        self._waiting = waiting

    async def reply(self, asked: pb.RouteRequest, tenant: str, owner: str, left_s: float | None) -> pb.RouteReply:
        """The answer, when the request's turn has come or its time is over; see ``FlowDesk.ask``.

        Raises:
            InvalidRequestError: The request itself is wrong.
            CallRefusedError: Too many calls wait.
        """
        answer: asyncio.Future[pb.RouteReply] = asyncio.get_running_loop().create_future()

        def settle(found: pb.RouteReply | Exception) -> None:
            if answer.done():
                self._lost(found)
            elif isinstance(found, Exception):
                answer.set_exception(found)
            else:
                answer.set_result(found)

        entered = self._desk.ask(asked, tenant, owner, left_s, settle)
        if isinstance(entered, pb.RouteReply):
            return entered
        try:
            with self._waiting.enter():
                return await answer
        except BaseException:
            if not self._desk.leave(entered) and answer.done() and not answer.cancelled():
                # The turn came in the moment in which the caller went.
                self._lost(answer.exception() or answer.result())
            raise

    def _lost(self, found: object) -> None:
        if isinstance(found, pb.RouteReply):
            self._desk.unsent(found)


class PumpTimer:
    """Calls the flow control's ``pump`` when it is due, on the running event loop.

    Args:
        desk: The flow control; its ``arm`` is set.
        clock: The router's clock.
    """

    def __init__(self, desk: FlowDesk, clock: Callable[[], float]) -> None:
        self._desk = desk
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = math.inf
        desk.arm = self.arm

    def arm(self, at_s: float) -> None:
        """Call ``pump`` at ``at_s`` or before."""
        if at_s < self._due_s:
            self.close()
            self._due_s = at_s
            self._timer = self._loop.call_later(max(at_s - self._clock(), 0.0), self._fire)

    def close(self) -> None:
        """No more calls until the next ``arm``."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due_s = None, math.inf

    def _fire(self) -> None:
        self._timer, self._due_s = None, math.inf
        self._desk.pump()
