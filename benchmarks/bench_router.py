"""The routing service: a whole decision in process, and decisions over gRPC against an empty handler.

A decision reads the request, hashes its prompt of 2,048 tokens, looks it up, predicts in two stages with a trained
forest, scores, charges a lease and builds the reply. ``p50`` and ``p99_wall`` are wall time, ``p50_cpu`` and
``p99`` processor time of the deciding thread, as in ``bench_tokenpilot``. The gRPC rows count decisions for each
second of the server's own processor time, the end of each request and four load reports a second of every endpoint
included; the empty handler has the same options, messages and client.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from benchmarks.bench_tokenpilot import row, times_us, trained
from benchmarks.router_fixture import busy_router, finish, questions, refresh
from models.base import LatencyPredictor
from models.store import ModelStore
from models.training import Trained
from router.channel_options import client_options
from router.pb.v1 import router_pb2 as pb
from router.pb.v1 import router_pb2_grpc as rpc

Row = dict[str, Any]
SIZES = (8, 64, 256, 1024, 4096)
TARGETS_US = {64: 300.0, 256: 400.0, 1024: 700.0, 4096: 1500.0}
SHARES = {"unary": 0.60, "stream": 0.50, "batch16": 0.40}
ENDPOINTS = 64
BATCH = 16
WINDOW = 16
SERVER_CORE, CLIENT_CORE = 0, 1


def decision_rows(n: int, predictor: LatencyPredictor, count: int) -> list[Row]:
    """A whole decision in process over ``n`` endpoints."""
    live = busy_router(n, predictor)
    asked = questions(count)
    open_replies: list[pb.RouteReply] = []

    def decide(i: int) -> None:
        open_replies.append(live.route(asked[i]))

    def settle(_: int) -> None:
        finish(live, open_replies.pop().placement.lease_id)
        if live.clock() - float(live.core.table.reported_at_s[0]) > 0.25:
            refresh(live)

    found = times_us(decide, count, settle)
    name = f"router.decision.{n}"
    most_p99 = 1000.0 if n == 64 else None
    return [
        row(f"{name}.p50", found.p50, "us", "-", None, TARGETS_US.get(n)),
        row(f"{name}.p50_cpu", found.cpu_p50, "us", f"{name}.p50", found.cpu_p50 / found.p50, None),
        row(f"{name}.p99", found.cpu_p99, "us", f"{name}.p50", found.cpu_p99 / found.p50, most_p99),
        row(f"{name}.p99_wall", found.p99, "us", f"{name}.p50", found.p99 / found.p50, None),
    ]


def grpc_rows(store: Path, seconds: float) -> list[Row]:
    """Decisions a second of server processor time: the empty handler, and right after it the router.

    The router decides by a trained forest (``.forest``), and by the closed-form prior alone (``.prior``), which is
    what serves before a model has been trained.
    """
    found: list[Row] = []
    with (
        server("empty", store) as empty,
        server("router", store) as forest,
        server("prior", store) as prior,
    ):
        for shape, share in SHARES.items():
            theirs = per_core(shape, *empty, seconds)
            reference = f"empty handler, {theirs:.0f} a second"
            for kind, process in (("forest", forest), ("prior", prior)):
                ours = per_core(shape, *process, seconds)
                name = f"router.grpc.{shape}.{kind}"
                entry = row(name, ours, "decisions per core-second", reference, ours / theirs, None)
                target = f">= {share:.0%} of the empty handler"
                found.append({**entry, "target": target, "met": ours >= share * theirs})
    return found


def per_core(shape: str, address: str, pid: int, seconds: float) -> float:
    """Decisions for each second that the server process computed."""
    return asyncio.run(_measure(shape, address, pid, seconds))


async def _measure(shape: str, address: str, pid: int, seconds: float) -> float:
    asked = questions(256)
    async with grpc.aio.insecure_channel(address, options=client_options()) as channel:
        stub = rpc.RouterStub(channel)
        await asyncio.wait_for(SHAPES[shape](stub, asked, time.monotonic() + 1.0), 30)
        before = cpu_s(pid)
        decided = await SHAPES[shape](stub, asked, time.monotonic() + seconds)
        spent = cpu_s(pid) - before
    return decided / spent


async def _unary(stub: Any, asked: list[pb.RouteRequest], until: float) -> int:
    async def one() -> int:
        count = 0
        while time.monotonic() < until:
            await stub.Route(asked[count % len(asked)])
            count += 1
        return count

    return sum(await asyncio.gather(*(one() for _ in range(WINDOW))))


async def _stream(stub: Any, asked: list[pb.RouteRequest], until: float) -> int:
    call = stub.RouteStream()
    sent = received = 0
    while sent < WINDOW:
        await call.write(asked[sent % len(asked)])
        sent += 1
    while received < sent:
        await call.read()
        received += 1
        if time.monotonic() < until:
            await call.write(asked[sent % len(asked)])
            sent += 1
    await call.done_writing()
    return received


async def _batch(stub: Any, asked: list[pb.RouteRequest], until: float) -> int:
    batches = [
        pb.RouteBatchRequest(requests=asked[i : i + BATCH]) for i in range(0, len(asked) - BATCH + 1, BATCH)
    ]

    async def one() -> int:
        count = 0
        while time.monotonic() < until:
            await stub.RouteBatch(batches[count % len(batches)])
            count += 1
        return BATCH * count

    return sum(await asyncio.gather(*(one() for _ in range(4))))


SHAPES: dict[str, Callable[..., Any]] = {"unary": _unary, "stream": _stream, "batch16": _batch}


def cpu_s(pid: int) -> float:
    """Processor time of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def server(kind: str, store: Path) -> Iterator[tuple[str, int]]:
    """A server process pinned to a core; gives its address and process id."""
    command = [sys.executable, "-m", "benchmarks.router_process", kind, str(ENDPOINTS), str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            os.sched_setaffinity(process.pid, {SERVER_CORE})
            assert process.stdout is not None
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.terminate()


def publish(model: Trained, folder: Path) -> Path:
    """The model in a store, serving."""
    store = ModelStore(folder)
    store.promote(store.publish(model.card, model.forest, model.texts))
    return folder


def rows(quick: bool) -> list[Row]:
    """All rows; ``quick`` measures fewer decisions."""
    model = trained()
    found: list[Row] = []
    for n in SIZES:
        found += decision_rows(n, model.predictor, 500 if quick else 5000)
    cores = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory() as folder:
        if len(cores) > 1:
            os.sched_setaffinity(0, {CLIENT_CORE})
        try:
            found += grpc_rows(publish(model, Path(folder)), 1.2 if quick else 8.0)
        finally:
            os.sched_setaffinity(0, cores)
    return found
