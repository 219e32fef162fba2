"""What the replay contest runs: one kind of engine in two forms, and seeded traces whose demand changes.

The engine is Llama-3.1-8B on one A100 of the catalog: the same step times go to Dynamo's replay, as the arrays of
its timing profile, and to the planner, as a fleet file's configuration.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data.catalog.load import load_catalog
from data.catalog.memory import kv_tokens_at
from data.catalog.types import ReplicaFacts
from data.fleet.types import Fleet, GpuPool, Model, Placed, ReplicaConfig, Site, Tenant, WorkloadClass
from data.types import Slo

MODEL, GPU = "llama-3.1-8b", "A100"
TTFT_S, TPOT_S = 2.0, 0.05
MOST_WORKERS = 12
BLOCK_TOKENS = 64
TRACE_BLOCK_TOKENS = 512
CONTEXT_TOKENS = 32_768
PREFILL_GRID = (1, 64, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768)
CONTEXT_GRID = (64, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768)
KV_POINTS = 13
SEASON_S = 400.0


@dataclass(frozen=True, slots=True)
class Workload:
    """A course of demand.

    Attributes:
        name: For people.
        rate_per_s: Requests/s at a moment.
        input_tokens: Mean prompt at a moment.
        duration_s: Length of the trace.
        season_s: Season that an operator declares; on traces without one it is false.
    """

    name: str
    rate_per_s: Callable[[float], float]
    input_tokens: Callable[[float], float]
    duration_s: float = 1600.0
    season_s: float = SEASON_S


def facts() -> ReplicaFacts:
    """The engine as the catalog knows it."""
    return load_catalog().facts(MODEL, GPU, 1)


def fleet(workers: int) -> Fleet:
    """One site, one pool, ``workers`` of its replicas running."""
    kind = WorkloadClass("interactive", Slo(ttft_s=TTFT_S, tpot_s=TPOT_S), expected_input_tokens=1700)
    return Fleet(
        name="replay",
        sites=(Site("main", "compute", "home"),),
        links=(),
        pools=(GpuPool("main", GPU, MOST_WORKERS),),
        models=(Model("assistant", "v1", MODEL, CONTEXT_TOKENS),),
        configs=(ReplicaConfig("assistant-a100", "assistant@v1", GPU, 1, load_ceiling=1.0),),
        classes=(kind,),
        tenants=(Tenant("default"),),
        placement=(Placed("main", "assistant-a100", workers),),
    )


def engine(folder: Path) -> dict[str, object]:
    """Arguments of Dynamo's mock engine; writes its timing profile into ``folder``."""
    known = facts()
    times, room = known.times, kv_tokens_at(known, load_catalog().gpu(GPU), 0.9)
    prompts = np.array(PREFILL_GRID, dtype=float)
    context = np.array(CONTEXT_GRID, dtype=float)
    kv = np.linspace(512.0, room, KV_POINTS)
    batch = np.clip(kv[:, None] / context[None, :], 1.0, 256.0)
    decode_s = times.d0 + times.d1 * batch + times.d2 * kv[:, None] + times.host_overhead
    path = folder / "profile.npz"
    np.savez(
        path,
        prefill_isl=prompts,
        prefill_ttft_ms=1e3 * (times.p0 + times.p1 * prompts + times.p2 * prompts**2 / 2 + times.host_overhead),
        decode_active_kv_tokens=kv,
        decode_context_length=context,
        decode_itl=1e3 * decode_s,
    )
    return {
        "block_size": BLOCK_TOKENS,
        "num_gpu_blocks": int(room // BLOCK_TOKENS),
        "startup_time": known.load_s,
        "planner_profile_data": str(path),
    }


def sinusoid(period_s: float = SEASON_S, low: float = 2.0, high: float = 22.0) -> Workload:
    """A day in a few minutes."""
    middle, swing = (high + low) / 2, (high - low) / 2
    rate = lambda t: middle + swing * math.sin(2 * math.pi * t / period_s)  # noqa: E731
    return Workload("sinusoid", rate, lambda _: 1700.0, season_s=period_s)


def burst(base: float = 6.0, factor: float = 4.0) -> Workload:
    """Quiet, with three bursts that nobody announced."""
    spans = ((300.0, 390.0), (760.0, 860.0), (1250.0, 1330.0))
    return Workload(
        "burst", lambda t: base * (factor if any(a <= t < b for a, b in spans) else 1.0), lambda _: 1700.0
    )


def drift() -> Workload:
    """The same rate of requests all the time, whose prompts grow fourfold and shrink again."""
    return Workload("drift", lambda _: 10.0, lambda t: 1200.0 * 4.0 ** math.sin(math.pi * t / 1600.0))


REPORTED = (sinusoid(), burst(), drift())
TRAINING = (sinusoid(500.0, 4.0, 18.0), burst(8.0, 3.0))


def write_trace(workload: Workload, seed: int, path: Path) -> None:
    """Poisson arrivals by thinning, lognormal lengths, no shared prefixes; Mooncake JSONL, times in ms."""
    rng = np.random.default_rng([seed, len(workload.name)])
    most = max(workload.rate_per_s(t) for t in np.arange(0.0, workload.duration_s, 1.0))
    now_s, lines, block = 0.0, [], 0
    while (now_s := now_s + float(rng.exponential(1.0 / most))) < workload.duration_s:
        if rng.random() * most > workload.rate_per_s(now_s):
            continue
        prompt = int(np.clip(_lognormal(rng, workload.input_tokens(now_s), 0.7), 16, CONTEXT_TOKENS // 2))
        output = int(np.clip(_lognormal(rng, 200.0, 0.6), 2, 2048))
        blocks = -(-prompt // TRACE_BLOCK_TOKENS)
        row = {"timestamp": round(1e3 * now_s), "input_length": prompt, "output_length": output,
               "hash_ids": list(range(block, block + blocks))}  # fmt: skip
        block += blocks
        lines.append(json.dumps(row))
    path.write_text("\n".join(lines) + "\n")


def _lognormal(rng: np.random.Generator, mean: float, sigma: float) -> float:
    return float(mean * math.exp(sigma * rng.standard_normal() - sigma**2 / 2))
