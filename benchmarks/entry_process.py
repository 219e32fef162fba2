"""An entry router's process for ``bench_entry``: ``python -m benchmarks.entry_process ADDRESS``.

The address is that of the site's router. Placements end soon here too, as they do in ``router_process``, so that
the entry's books stay as small as in service.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop

from benchmarks.router_fixture import fleet
from benchmarks.router_process import SETTLE_S
from data.catalog.load import load_catalog
from router.entry.entry_build import build_entry
from router.entry.entry_server import EntryServer
from router.entry.site_fleet import site_fleet
from router.filters import FilterSettings
from router.pb.v1 import router_pb2 as pb
from router.serving.auth import Authenticator
from router.serving.server_settings import ListenSettings
from router.serving.wire_request import WireLimits


async def entry(address: str) -> None:
    """Serve until terminated, as soon as the site has been heard of."""
    made = site_fleet(fleet(), "bench", load_catalog(), ["B"], FilterSettings(), WireLimits())
    router = build_entry(made, {"B": address})
    async with EntryServer(router, Authenticator(), ListenSettings("127.0.0.1:0")) as server:
        while not router.links["B"].reachable():
            await asyncio.sleep(SETTLE_S)
        print(server.address, flush=True)
        while True:
            await asyncio.sleep(SETTLE_S)
            for lease in router.leases:
                finished = pb.Finished(output_tokens=50, ttft_s=0.1)
                router.reported(pb.ReportEvent(lease_id=lease.wire_id, finished=finished), lease.owner)


if __name__ == "__main__":
    uvloop.run(entry(sys.argv[1]))
