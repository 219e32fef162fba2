"""Speed and memory of the simulator.

The Mooncake conversation trace is read from ``TOKENFLEET_SHARED_DATA``; without it, sessions with the same mean
lengths and a shared system prompt stand in. Each case runs in a process of its own, so that its peak memory is
its own. Times are processor seconds: the simulator uses one core, and other work on the machine does not count.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from data.catalog.load import load_catalog
from data.fleet.reference import reference_fleet
from data.fleet.types import Placed
from data.traces.registry import open_trace
from data.types import Request
from planner.sim.result import RunResult
from planner.sim.run import simulate
from planner.sim.settings import SimSettings
from router.build import endpoint_specs
from router.endpoints import EndpointTable
from router.registry import make_policy

Row = dict[str, Any]
KV_POLICY = "kv_cost_dynamo"


def mooncake() -> Iterator[Request]:
    """The conversation trace, its ticks spread; or the stand-in."""
    root = os.environ.get("TOKENFLEET_SHARED_DATA")
    if root is None:
        return sessions(12_031, 3.4, seed=1)
    path = Path(root) / "mooncake" / "conversation_trace.jsonl"
    return (request for batch in open_trace(path).batches() for request in batch.rows())


def sessions(count: int, rate_per_s: float, seed: int) -> Iterator[Request]:
    """Poisson arrivals of turns of many sessions: about 12,000 tokens in, 340 out, a third of the blocks known."""
    rng = np.random.default_rng(seed)
    now_s, next_hash = 0.0, 1
    live: list[tuple[int, ...]] = []
    for number in range(count):
        now_s += float(rng.exponential(1.0 / rate_per_s))
        if live and rng.random() < 0.5:
            before = live.pop(int(rng.integers(len(live))))
        else:
            before = (0,)
        new = 1 + int(rng.geometric(1 / 14))
        hashes = before + tuple(range(next_hash, next_hash + new))
        next_hash += new
        if len(hashes) < 120:
            live.append(hashes)
        if len(live) > 2000:
            live.pop(0)
        output = 1 + int(rng.gamma(1.2, 283))
        yield Request(
            request_id=number,
            arrival_s=now_s,
            input_tokens=512 * len(hashes) - int(rng.integers(1, 512)),
            output_tokens=output,
            output_budget=4096,
            block_hashes=hashes,
        )


def run(replicas: int, requests: Iterator[Request], policy: str) -> RunResult:
    """One run on equal replicas of the ``one-pool`` fleet."""
    fleet = reference_fleet("one-pool")
    specs = endpoint_specs(fleet, load_catalog(), [Placed("main", fleet.configs[0].name, replicas)])
    table = EndpointTable(specs)
    chooser = make_policy(policy, {}, table, 1)
    return simulate(fleet, specs, requests, chooser, SimSettings(seed=1), table=table)


def measure(case: str, replicas: int, count: int, rate_per_s: float, policy: str) -> tuple[float, float, int]:
    """Processor seconds, peak memory in MB and requests of one case, in this process."""
    requests = mooncake() if case == "mooncake" else sessions(count, rate_per_s, seed=2)
    before = time.process_time()
    result = run(replicas, requests, policy)
    cpu_s = time.process_time() - before
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    total = result.total
    print(
        f"   {case} {policy} {replicas}: {cpu_s:.1f} s, {peak_mb:.0f} MB, {total.offered} requests, "
        f"attainment {total.attainment_offered:.3f}, hits {total.hit_rate:.3f}",
        file=sys.stderr,
    )
    return cpu_s, peak_mb, total.offered


def apart(*case: Any) -> tuple[float, float, int]:
    """The same in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, case)


def row(id_: str, value: float, unit: str, most: float, reference: str = "", ratio: float | None = None) -> Row:
    return {
        "id": id_,
        "area": "simulator",
        "value": value,
        "unit": unit,
        "reference": reference or None,
        "ratio": ratio,
        "target": f"<= {most:g} {unit}",
        "met": value <= most,
    }


def rows(quick: bool) -> list[Row]:
    """All rows; ``quick`` repeats the growth cases once instead of three times."""
    found: list[Row] = []
    for policy in ("round_robin", KV_POLICY):
        cpu_s, peak_mb, _ = apart("mooncake", 64, 0, 0.0, policy)
        found.append(row(f"sim.mooncake_hour_64.{policy}.time", cpu_s, "s", 60.0))
        found.append(row(f"sim.mooncake_hour_64.{policy}.memory", peak_mb, "MB", 1024.0))
    cpu_s, _, _ = apart("sessions", 64, 20_000, 64.0, KV_POLICY)
    peer = "replay of Dynamo 1.6.1 (Rust), other trace: 8.1 s"
    found.append(row("sim.20k_requests_64_workers.time", cpu_s, "s", 30.0, peer, cpu_s / 8.1))
    for policy in ("least_request", KV_POLICY):
        found += growth(policy, repeats=1 if quick else 3)
    return found


def growth(policy: str, repeats: int) -> list[Row]:
    """Time per request and memory at equal load per replica; the best of interleaved repeats."""
    sizes = (64, 256, 1024)
    times = dict.fromkeys(sizes, float("inf"))
    peaks = dict.fromkeys(sizes, float("inf"))
    for _ in range(repeats):
        for replicas in sizes:
            cpu_s, peak_mb, count = apart("sessions", replicas, 60 * replicas, 1.0 * replicas, policy)
            times[replicas] = min(times[replicas], cpu_s / count)
            peaks[replicas] = min(peaks[replicas], peak_mb)
    found: list[Row] = []
    for replicas in sizes[1:]:
        name = f"sim.growth.{policy}.{replicas}"
        ratio = times[replicas] / times[64]
        found.append(row(f"{name}.time_per_request", ratio, "x", 1.5, "64 replicas", ratio))
        ratio = peaks[replicas] / peaks[64]
        found.append(row(f"{name}.memory", ratio, "x", replicas / 64, "64 replicas", ratio))
    return found
