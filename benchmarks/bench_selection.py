"""Dynamo's SelectionService beside ours, in process: the same fleet, prompts, cached prefixes and load, one run.

The peer takes part if ``TOKENFLEET_DYNAMO_PYTHON`` names an interpreter with ``ai-dynamo-runtime`` 1.6.1; it runs
in a process of its own right before ours, at its defaults. Prompts have 2,048 tokens and come as block hashes or
as token ids, which both routers then hash. *Without prediction* is the peer's own cost formula in our router;
*with* is TokenPilot over a trained forest. A lifecycle is place and charge, tell of the first token, tell of the
end. A core-second is one second of processor time of the whole process, all threads counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_tokenpilot import trained_predictor
from benchmarks.router_fixture import busy_router, endpoints, finish, questions, refresh
from models.base import LatencyPredictor
from router.pb.v1 import router_pb2 as pb
from router.prompts.xxh64 import chain
from router.serving.live import LiveRouter
from router.types import FleetView

Row = dict[str, Any]
SIZES = (8, 64, 256)
BLOCK_TOKENS = 16
PROGRAM = "TOKENFLEET_DYNAMO_PYTHON"
UNITS = {
    "select_p50_us": "us",
    "select_p99_us": "us",
    "reserve_p50_us": "us",
    "reserve_p99_us": "us",
    "lifecycles_per_s": "lifecycles/s",
    "lifecycles_per_core_s": "lifecycles/core-second",
}
"""Select chooses only; reserve also charges."""
Found = dict[str, dict[str, float]]
"""Measures by form of the prompt: ``hashes`` or ``tokens``."""


def tokens_of(question: pb.RouteRequest) -> list[int]:
    """The prompt of a question."""
    return [int(token) for token in np.frombuffer(question.token_ids, dtype=np.uint32)]


def with_hashes(question: pb.RouteRequest) -> pb.RouteRequest:
    """The same question with block hashes of the caller's own in place of token ids."""
    tokens = np.frombuffer(question.token_ids, dtype=np.uint32)
    hashes = chain(tokens, BLOCK_TOKENS, np.uint64(0), np.zeros(0, dtype=np.uint64))
    return pb.RouteRequest(
        model=question.model,
        tenant=question.tenant,
        input_tokens=len(tokens),
        output_budget=question.output_budget,
        block_hashes=hashes.astype("<u8").tobytes(),
        block_tokens=BLOCK_TOKENS,
    )


def ours(n: int, policy: str, predictor: LatencyPredictor | None, count: int) -> Found:
    """Our router over ``n`` endpoints."""
    held, asked = max(2 * n, 256), questions(count)
    found: Found = {}
    for form, of in (("hashes", with_hashes), ("tokens", lambda question: question)):
        live = busy_router(n, predictor, policy, held)
        if form == "hashes":
            # Callers' hashes are other ones than those of token ids: the same prompts must be held under them.
            for number, question in enumerate(questions(held, seed=2)):
                read = live.state.reader.read(of(question))
                live.index.stored(number % n, read.request.block_hashes)
        found[form] = measured(live, [of(question) for question in asked])
    return found


def measured(live: LiveRouter, asked: list[pb.RouteRequest]) -> dict[str, float]:
    """Times of single choices, and how many full lifecycles a second there are."""
    select_s: list[float] = []
    for question in asked:
        began_s = time.perf_counter()
        choose(live, question)
        select_s.append(time.perf_counter() - began_s)
        keep_fresh(live)
    reserve_s: list[float] = []
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    for question in asked:
        began_s = time.perf_counter()
        reply = live.route(question)
        reserve_s.append(time.perf_counter() - began_s)
        lease, now_s = reply.placement.lease_id, live.clock()
        live.reports.take(pb.ReportEvent(lease_id=lease, first_token=pb.FirstToken()), "", now_s)
        finish(live, lease)
        keep_fresh(live)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    return {
        "select_p50_us": quantile_us(select_s, 50),
        "select_p99_us": quantile_us(select_s, 99),
        "reserve_p50_us": quantile_us(reserve_s, 50),
        "reserve_p99_us": quantile_us(reserve_s, 99),
        "lifecycles_per_s": len(asked) / wall_s,
        "lifecycles_per_core_s": len(asked) / cpu_s,
    }


def choose(live: LiveRouter, question: pb.RouteRequest) -> object:
    """Read a request and choose, without charging anybody."""
    read = live.state.reader.read(question)
    path = live.state.paths.of(read.request.origin)
    view = FleetView(live.clock(), live.core.table, live.index, path.rtt_s)
    rows = live.core.candidates(read.request, path.reachable)
    return live.core.decide(read.request, view, rows=rows)


def keep_fresh(live: LiveRouter) -> None:
    """Load reports four times a second, as scraped ones would come."""
    if live.clock() - float(live.core.table.reported_at_s[0]) > 0.25:
        refresh(live)


def quantile_us(times_s: list[float], percent: float) -> float:
    """A percentile in microseconds, after the first tenth as warm-up."""
    return float(np.percentile(times_s[len(times_s) // 10 :], percent)) * 1e6


def dynamo(n: int, count: int) -> Found | str:
    """The peer over as many workers; or why there is none."""
    program = os.environ.get(PROGRAM)
    if not program:
        return f"{PROGRAM} is not set"
    spec = endpoints(1)[0].spec
    wanted = {
        "workers": n,
        "block_tokens": BLOCK_TOKENS,
        "capacity_blocks": spec.kv_capacity_tokens // BLOCK_TOKENS,
        "batch_tokens": spec.batch_token_budget,
        "held": [tokens_of(question) for question in questions(max(2 * n, 256), seed=2)],
        "asked": [tokens_of(question) for question in questions(count)],
    }
    script = Path(__file__).with_name("selection_rival_dynamo.py")
    ran = subprocess.run(
        [program, str(script)],
        input=json.dumps(wanted),
        capture_output=True,
        text=True,
        env={**os.environ, "DYN_LOG": "error"},
        check=False,
    )
    if ran.returncode:
        return f"ended with {ran.returncode}: {ran.stderr.strip()[-200:]}"
    found: Found = json.loads(ran.stdout.splitlines()[-1])
    return found


def rows(quick: bool) -> list[Row]:
    """One row for each size, form of the prompt, router and measure."""
    count = 400 if quick else 2000
    predictor = trained_predictor()
    arms: tuple[tuple[str, Callable[[int], Found | str]], ...] = (
        ("dynamo", lambda n: dynamo(n, count)),
        ("ours_without_prediction", lambda n: ours(n, "kv_cost_dynamo", None, count)),
        ("ours_with_prediction", lambda n: ours(n, "tokenpilot", predictor, count)),
    )
    table: list[Row] = []
    for n in SIZES:
        peer: Found | None = None
        for name, run in arms:
            found = run(n)
            if isinstance(found, str):
                table.append(entry(f"{n}.{name}", 0.0, "-", found, None))
                continue
            if name == "dynamo":
                peer = found
            table += arm_rows(n, name, found, None if peer is found else peer)
    return table


def arm_rows(n: int, name: str, found: Found, peer: Found | None) -> list[Row]:
    """Rows of one router; with the peer's figure and the ratio to it where there is one."""
    made = []
    for form, measures in found.items():
        for measure, value in measures.items():
            other = None if peer is None else peer[form][measure]
            reference = "-" if other is None else f"dynamo, {other:.0f}"
            ratio = None if other is None else value / other
            made.append(entry(f"{n}.{form}.{measure}.{name}", value, UNITS[measure], reference, ratio))
    return made


def entry(name: str, value: float, unit: str, reference: str, ratio: float | None) -> Row:
    """One row; these have no targets: the table shows both, whoever wins."""
    return {
        "id": f"selection.{name}",
        "area": "router",
        "value": value,
        "unit": unit,
        "reference": reference,
        "ratio": ratio,
        "target": "-",
        "met": None,
    }


if __name__ == "__main__":
    for found_row in rows(quick="--full" not in sys.argv):
        print(found_row)
