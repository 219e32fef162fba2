"""A router at twice the streams that it takes: it answers health, refuses the excess, and comes back (F125)."""

from __future__ import annotations

import asyncio
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from benchmarks.serve_process import ServeProcess
from router.observe.metric_catalog import PREFIX
from router.pb.v1 import router_pb2 as pb
from router.pb.v1 import router_pb2_grpc as rpc

T = TypeVar("T")
RATED = 8
LOAD_S = 20.0
BATCH = 64


def memory_kb(process: ServeProcess) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0])


def lag_share_within(page: str, seconds: float) -> float:
    """Share of the event loop's timers that were at most so late."""
    with urllib.request.urlopen(page, timeout=10) as answer:
        text = answer.read().decode()
    name = re.escape(PREFIX + "event_loop_lag_seconds")
    (within,) = re.findall(rf'{name}_bucket\{{le="{seconds:g}"\}} ([\d.]+)', text)
    (count,) = re.findall(rf"{name}_count ([\d.]+)", text)
    return float(within) / float(count)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_twice_the_rated_calls_leave_the_router_alive_f125(tmp_path: Path) -> None:
    """F125: liveness within 1 s all the time, bounded memory, the excess refused at once, no lease left."""
    settings = tmp_path / "router.yaml"
    settings.write_text(f"server: {{concurrent_streams: {RATED}, drain_s: 0.5}}\n")
    options = (
        "--fleet",
        "one-pool",
        "--flow",
        "none",
        "--settings",
        str(settings),
        "--metrics-listen",
        "127.0.0.1:0",
    )
    codes: Counter[str] = Counter()
    waiting: list[pb.ReportEvent] = []
    slowest_s = 0.0
    with ServeProcess(*options) as router:
        stop_s = time.monotonic() + LOAD_S
        asked = pb.RouteRequest(model="assistant@v1", tenant="default", input_tokens=4000, output_budget=100)

        async def counted(call: Awaitable[T]) -> T | None:
            """The answer, or nothing where the router refused."""
            try:
                answer = await call
            except grpc.RpcError as error:
                codes[error.code().name] += 1  # type: ignore[attr-defined]
                return None
            codes["OK"] += 1
            return answer

        async def stream(stub: rpc.RouterStub) -> list[pb.RouteReply]:
            return [reply async for reply in stub.RouteStream(iter([asked] * BATCH))]

        async def caller(stub: rpc.RouterStub) -> None:
            while time.monotonic() < stop_s:
                for reply in await counted(stream(stub)) or []:
                    done = pb.Finished(output_tokens=9)
                    waiting.append(pb.ReportEvent(lease_id=reply.placement.lease_id, finished=done))
                taken, waiting[:] = list(waiting), []
                if taken and await counted(stub.Report(iter(taken))) is None:
                    waiting.extend(taken)

        async def probe(channel: grpc.aio.Channel) -> None:
            nonlocal slowest_s
            stub = health_pb2_grpc.HealthStub(channel)
            while time.monotonic() < stop_s:
                began_s = time.monotonic()
                reply = await stub.Check(health_pb2.HealthCheckRequest(service="liveness"), timeout=5)
                assert reply.status == health_pb2.HealthCheckResponse.ServingStatus.Value("SERVING")
                slowest_s = max(slowest_s, time.monotonic() - began_s)
                await asyncio.sleep(0.1)

        async with grpc.aio.insecure_channel(router.address) as channel:
            stub = rpc.RouterStub(channel)
            before_kb = memory_kb(router)
            async with asyncio.TaskGroup() as group:
                group.create_task(probe(channel))
                for _ in range(2 * RATED):
                    group.create_task(caller(stub))
            async with asyncio.timeout(30):
                assert (await stub.Report(iter(waiting))).unknown_lease == 0
        grown_kb = memory_kb(router) - before_kb
        share = lag_share_within(f"{router.page}/metrics", 0.05)
        with urllib.request.urlopen(f"{router.page}/metrics", timeout=10) as answer:
            assert f"{PREFIX}leases_open 0.0" in answer.read().decode()
    told = f"{dict(codes)}, slowest probe {slowest_s:.3f} s, {grown_kb} kB more, lag within 50 ms: {share:.4f}"
    # Who still writes to a stream that was refused is told INTERNAL by its own end.
    assert {"OK", "RESOURCE_EXHAUSTED"} <= set(codes) <= {"OK", "RESOURCE_EXHAUSTED", "INTERNAL"}, told
    assert slowest_s < 1.0, told
    assert grown_kb < 100_000, told
