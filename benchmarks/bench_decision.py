"""Cost of one routing decision: every policy, and the state it stands on, at 64 and 1,024 endpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from data.catalog.types import ServiceTimes
from data.fleet.types import Fleet, Model, Site, Tenant
from data.types import Slo
from router.endpoints import EndpointSpec, EndpointTable
from router.filters import FilterRules, eligible
from router.leases import LeaseBook
from router.prefix import ApproxPrefixIndex, EventPrefixIndex
from router.registry import POLICIES, make_policy
from router.reports import apply_reports
from router.types import FleetView, RouteRequest

Row = dict[str, Any]
SIZES = (64, 1024)
BLOCKS, SHARED = 30, 26
"""Blocks of a prompt, and how many of them it shares with others."""
LOAD_ONLY = ("round_robin", "random", "least_request", "power_of_two", "least_load_smg", "latency_based_litellm")
TIMES = ServiceTimes(p0=0.01, p1=5e-5, p2=1e-9, d0=0.008, d1=1e-5, d2=1e-8)


def table_of(n: int) -> EndpointTable:
    """Equal endpoints of one model at one site."""
    return EndpointTable(
        [
            EndpointSpec(f"B/c/{i}", "B", "m@1", "c", "H100", 1, TIMES, 400_000, 8192, 256, 131_072)
            for i in range(n)
        ]
    )


def request_of(number: int, hashes: tuple[int, ...]) -> RouteRequest:
    """A prompt of about 15,000 tokens."""
    slo = Slo(ttft_s=2.0, tpot_s=0.05)
    return RouteRequest(
        number, "m@1", "t", "interactive", "A", 512 * len(hashes), 500, 200.0, hashes, 512, "", slo
    )


def prompts(rng: np.random.Generator, count: int) -> list[RouteRequest]:
    """Prompts that share most of their blocks with one of 200 others."""
    bases = [tuple(rng.integers(1, 2**62, SHARED).tolist()) for _ in range(200)]
    return [
        request_of(i, bases[int(rng.integers(200))] + tuple(rng.integers(1, 2**62, BLOCKS - SHARED).tolist()))
        for i in range(count)
    ]


def median_us(call: Callable[[int], object], count: int) -> float:
    """Median time of ``call(0)``, ``call(1)``, … in microseconds, after a tenth of them as warm-up."""
    times = []
    for i in range(count):
        started = time.perf_counter()
        call(i)
        times.append(time.perf_counter() - started)
    return float(np.median(times[count // 10 :])) * 1e6


def row(id_: str, value: float, most: float) -> Row:
    """One measured time with its bound, both in microseconds."""
    return {
        "id": id_,
        "area": "decision",
        "value": value,
        "unit": "us",
        "reference": "-",
        "ratio": None,
        "target": f"<= {most:g} us",
        "met": value <= most,
    }


def policy_us(name: str, n: int, count: int) -> float:
    """Median of ``choose`` in a busy pool: reports, cached prefixes and work in flight everywhere."""
    rng = np.random.default_rng(0)
    table, index = table_of(n), EventPrefixIndex(n)
    book = LeaseBook(table)
    requests = prompts(rng, count + 4 * n)
    policy = make_policy(name, {}, table, 1)
    rows, rtt_s = np.arange(n), np.zeros(n)
    view = FleetView(1.0, table, index, rtt_s)
    for i, request in enumerate(requests[count:]):
        index.stored(i % n, request.block_hashes)
        book.open(request, i % n, 0.0, 0.5)
        policy.dispatched(request, i % n, view)
    values = rng.integers(0, 9, n).astype(float)
    apply_reports(table, book, rows, 0.9, values, values, values / 10)
    return median_us(lambda i: policy.choose(requests[i], rows, view), count)


def state_rows(n: int, count: int) -> list[Row]:
    """Accounting, reports, filters and the prefix index."""
    rng = np.random.default_rng(0)
    table = table_of(n)
    book, index, guess = LeaseBook(table), EventPrefixIndex(n), ApproxPrefixIndex(n, 800)
    requests = prompts(rng, count)
    fleet = Fleet(
        "f", (Site("B", "compute", "z"),), (), (), (Model("m", "1", "x", 131_072),), (), (), (Tenant("t"),)
    )
    rules = FilterRules(fleet, table)
    for i, request in enumerate(requests):
        index.stored(i % n, request.block_hashes)
    rows, values = np.arange(n), rng.random(n)

    def cycle(i: int) -> None:
        lease = book.open(requests[i], i % n, 0.0, i * 1e-3)
        book.first_token(lease, i * 1e-3)
        book.close(lease, i * 1e-3)

    def report(i: int) -> None:
        apply_reports(table, book, rows, 1e6 + i, values, values, values)

    found = {
        "lease": (median_us(cycle, count), 10.0),
        "reports": (median_us(report, count), 20.0),
        "filters": (median_us(lambda i: eligible(requests[i], table, rules), count), 10.0),
        "prefix_lookup": (median_us(lambda i: index.matched_blocks(requests[i].block_hashes), count), 20.0),
        "prefix_guess": (median_us(lambda i: guess.insert(i % n, requests[i].block_hashes), count), 20.0),
    }
    return [row(f"decision.state.{name}.{n}", value, most) for name, (value, most) in found.items()]


def rows(quick: bool) -> list[Row]:
    """All rows; ``quick`` measures fewer decisions."""
    count = 500 if quick else 3000
    found: list[Row] = []
    for n in SIZES:
        found += state_rows(n, count)
        for name in POLICIES:
            most = 400.0 if n > 64 else 50.0 if name in LOAD_ONLY else 120.0
            found.append(row(f"decision.policy.{name}.{n}", policy_us(name, n, count), most))
    return found
