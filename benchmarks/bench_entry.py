"""Two levels against one: what it costs a caller that an entry router stands before the site's router.

Three processes on loopback: client, entry, and one router with 64 endpoints that decides by the closed-form prior.
Blocks of questions to the router itself and through the entry take turns, one question at a time, so both meet the
same noise. ``cpu`` is the processor time of all server processes for one decision.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from benchmarks.bench_router import cpu_s
from benchmarks.router_fixture import questions
from router.channel_options import client_options
from router.pb.v1 import router_pb2_grpc as rpc

Row = dict[str, Any]
ENDPOINTS = 64
BLOCK = 200


async def _block(stub: Any, asked: list[Any]) -> list[float]:
    """Wall times of one question after the other, microseconds."""
    found = []
    for question in asked:
        began = time.perf_counter()
        await stub.Route(question, timeout=10)
        found.append((time.perf_counter() - began) * 1e6)
    return found


async def _measure(direct: str, entry: str, pids: tuple[int, int], blocks: int) -> list[Row]:
    asked = questions(BLOCK)
    times: dict[str, list[list[float]]] = {"one": [], "two": []}
    spent = {"one": 0.0, "two": 0.0}
    async with (
        grpc.aio.insecure_channel(direct, options=client_options()) as near,
        grpc.aio.insecure_channel(entry, options=client_options()) as far,
    ):
        stubs = {"one": rpc.RouterStub(near), "two": rpc.RouterStub(far)}
        for stub in stubs.values():
            await _block(stub, asked)
        for _ in range(blocks):
            for name, stub in stubs.items():
                before = sum(map(cpu_s, pids))
                times[name].append(await _block(stub, asked))
                spent[name] += sum(map(cpu_s, pids)) - before
    return list(_rows(times, spent, blocks * BLOCK))


def _rows(times: dict[str, list[list[float]]], spent: dict[str, float], count: int) -> Iterator[Row]:
    for name, share in (("p50", 50), ("p99", 99)):
        one, two = (_quantile([t for block in times[level] for t in block], share) for level in ("one", "two"))
        yield _row(f"entry.one_level.{name}", one, "us", "-", None)
        yield _row(f"entry.two_levels.{name}", two, "us", f"one level, {one:.0f} us", two / one)
    medians = [
        (statistics.median(two) - statistics.median(one))
        for one, two in zip(times["one"], times["two"], strict=True)
    ]
    added = _row("entry.added.p50", statistics.median(medians), "us", "one level, same block", None)
    yield {**added, "interval": [min(medians), max(medians)]}
    one_us, two_us = (spent[level] / count * 1e6 for level in ("one", "two"))
    yield _row("entry.two_levels.cpu", two_us, "us", f"one level, {one_us:.0f} us", two_us / one_us)


def _quantile(values: list[float], share: int) -> float:
    return statistics.quantiles(values, n=100)[share - 1]


def _row(id_: str, value: float, unit: str, reference: str, ratio: float | None) -> Row:
    return {
        "id": id_,
        "area": "sites",
        "value": value,
        "unit": unit,
        "reference": reference,
        "ratio": ratio,
        "target": "-",
        "met": True,
    }


@contextmanager
def process(*arguments: str) -> Iterator[tuple[str, int]]:
    """A server process; gives its address and process id."""
    with subprocess.Popen([sys.executable, "-m", *arguments], stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            yield running.stdout.readline().strip(), running.pid
        finally:
            running.terminate()


def rows(quick: bool) -> list[Row]:
    """All rows; ``quick`` asks fewer questions."""
    with (
        process("benchmarks.router_process", "prior", str(ENDPOINTS), str(Path())) as (direct, router),
        process("benchmarks.entry_process", direct) as (entry, pid),
    ):
        return asyncio.run(_measure(direct, entry, (router, pid), 5 if quick else 25))


if __name__ == "__main__":
    for each in rows(quick="--quick" in sys.argv):
        print(each)
