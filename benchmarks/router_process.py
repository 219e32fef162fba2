"""A server process for ``bench_router``.

``python -m benchmarks.router_process empty|router|prior ENDPOINTS STORE``
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import uvloop

from benchmarks.router_fixture import busy_router, finish, questions, refresh
from models.store import ModelStore
from router.channel_options import MESSAGE_BYTES, server_options
from router.pb.v1 import router_pb2 as pb
from router.pb.v1 import router_pb2_grpc as rpc
from router.serving.auth import Authenticator
from router.serving.server import RouterServer
from router.serving.server_settings import ListenSettings

REPORT_S = 0.25
SETTLE_S = 0.05


class Empty(rpc.RouterServicer):
    """Answers every question with the same reply."""

    def __init__(self, reply: pb.RouteReply) -> None:
        self._reply = reply

    async def Route(self, request: pb.RouteRequest, context: Any) -> pb.RouteReply:  # noqa: ARG002, N802
        """The reply."""
        return self._reply

    async def RouteBatch(self, request: pb.RouteBatchRequest, context: Any) -> pb.RouteBatchReply:  # noqa: ARG002, N802
        """As many replies as questions."""
        return pb.RouteBatchReply(replies=[self._reply] * len(request.requests))

    async def RouteStream(  # noqa: N802
        self,
        requests: AsyncIterator[pb.RouteRequest],
        context: Any,  # noqa: ARG002
    ) -> AsyncIterator[pb.RouteReply]:
        """A reply for each question."""
        async for _ in requests:
            yield self._reply

    async def Report(self, events: AsyncIterator[pb.ReportEvent], context: Any) -> pb.ReportSummary:  # noqa: ARG002, N802
        """Takes all events."""
        async for _ in events:
            pass
        return pb.ReportSummary()


async def empty(n: int) -> None:
    """Serve the empty handler; its reply is one of the router's."""
    reply = busy_router(n).route(questions(1)[0])
    server = grpc.aio.server(options=server_options(2 * MESSAGE_BYTES))
    rpc.add_RouterServicer_to_server(Empty(reply), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


async def router(n: int, store: Path | None) -> None:
    """Serve the router with the model of the store, or with the prior alone.

    Load reports come four times a second, as scraped ones would, and requests end soon.
    """
    live = busy_router(n, None if store is None else ModelStore(store).load())
    async with RouterServer(live, Authenticator(), ListenSettings("127.0.0.1:0")) as server:
        print(server.address, flush=True)
        reported_s = live.clock()
        while True:
            await asyncio.sleep(SETTLE_S)
            for lease in live.leases:
                finish(live, lease.wire_id, lease.owner)
            if live.clock() - reported_s > REPORT_S:
                reported_s = live.clock()
                refresh(live)


def main(kind: str, endpoints: int, store: Path) -> None:
    """Serve until terminated."""
    uvloop.run(empty(endpoints) if kind == "empty" else router(endpoints, None if kind == "prior" else store))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
