"""One fleet, one trace and the same step curves in Dynamo's offline replay and in ours, both round robin.

The curves are what both can express: prefill linear in new tokens, decode linear in sequences and KV tokens, and
no fixed part of prefill, so that a mixed step is the sum of its parts in both.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.fidelity.engine_replay import Ends, with_tpot
from data.catalog.load import load_catalog
from data.catalog.types import ServiceTimes
from data.fleet.types import EngineSettings, Fleet, GpuPool, Model, Placed, ReplicaConfig, Site, WorkloadClass
from data.types import FloatArray, Request, Slo
from planner.sim.run import simulate
from planner.sim.settings import SimSettings
from router.build import endpoint_specs
from router.endpoints import EndpointTable
from router.registry import make_policy

MODEL, GPU = "llama-3.1-8b", "H100"
WORKERS, SEQUENCES, BATCH_TOKENS, BLOCK_TOKENS = 8, 256, 8192, 64
TRACE_BLOCK_TOKENS = 512
TICK_S = 3.0
"""The trace's clock ticks this coarsely; requests of one tick are spread over it."""
TARGET = Slo(ttft_s=2.0, tpot_s=0.05)
PROGRAM = Path(__file__).parent / "dynamo_replay.py"
CONTEXTS = (256, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
KV_POINTS = 65


@dataclass(frozen=True, slots=True)
class Served:
    """What a simulator says.

    Attributes:
        times: Shape (requests, 3): TTFT, E2E and TPOT, seconds, in order of arrival.
        outputs: Output tokens.
        hit_rate: Prompt tokens found in a cache over all prompt tokens.
    """

    times: FloatArray
    outputs: FloatArray
    hit_rate: float

    @property
    def good_share(self) -> float:
        """Output tokens of requests within the targets over all output tokens."""
        met = [
            TARGET.met(row[0], row[1], int(tokens)) for row, tokens in zip(self.times, self.outputs, strict=True)
        ]
        return float(self.outputs[np.array(met)].sum() / self.outputs.sum())


def curves() -> tuple[ServiceTimes, int]:
    """Step times that both express, and KV tokens of a replica: those of the catalog, without what one cannot."""
    facts = load_catalog().facts(MODEL, GPU, 1)
    times = replace(facts.times, p0=0.0, p2=0.0, d0=max(facts.times.d0, 0.001), host_overhead=0.0)
    return times, facts.kv_capacity_tokens // TRACE_BLOCK_TOKENS * TRACE_BLOCK_TOKENS


def trace(path: Path, count: int, speed: float, seed: int = 1) -> list[Request]:
    """The first requests of a Mooncake trace, so many times as fast, to the millisecond."""
    rng, found = np.random.default_rng(seed), []
    with path.open() as lines:
        for line, _ in zip(lines, range(count), strict=False):
            row = json.loads(line)
            at_s = (row["timestamp"] / 1000 + rng.uniform(0.0, TICK_S)) / speed
            found.append((round(at_s, 3), row["input_length"], row["output_length"], tuple(row["hash_ids"])))
    found.sort(key=lambda one: one[0])
    return [
        Request(i, at_s, prompt, output, output, hashes, TRACE_BLOCK_TOKENS)
        for i, (at_s, prompt, output, hashes) in enumerate(found)
    ]


def ours(requests: Sequence[Request], times: ServiceTimes, kv_tokens: int) -> Served:
    """The requests in our simulator."""
    engine = EngineSettings(BATCH_TOKENS, SEQUENCES, BLOCK_TOKENS)
    fleet = Fleet(
        name="replay",
        links=(),
        classes=(WorkloadClass("any", TARGET),),
        tenants=(),
        sites=(Site("here", "compute", "home"),),
        pools=(GpuPool("here", GPU, WORKERS),),
        models=(Model("model", "v1", MODEL, 200_000, engine),),
        configs=(ReplicaConfig("config", "model@v1", GPU, 1),),
        placement=(Placed("here", "config", WORKERS),),
    )
    specs = [
        replace(spec, times=times, kv_capacity_tokens=kv_tokens)
        for spec in endpoint_specs(fleet, load_catalog(), fleet.placement)
    ]
    table, ends = EndpointTable(specs), Ends()
    policy = make_policy("round_robin", {}, table, 0)
    result = simulate(fleet, specs, requests, policy, SimSettings(step_noise=0.0), table=table, sink=ends)
    rows = [ends.rows[request.request_id] for request in requests]
    outputs = np.array([row["output_tokens"] for row in rows], dtype=np.float64)
    times_s = with_tpot([(row["ttft_s"], row["e2e_s"], row["output_tokens"]) for row in rows])
    return Served(times_s, outputs, float(result.total.hit_rate))


def theirs(python: str, requests: Sequence[Request], times: ServiceTimes, kv_tokens: int) -> Served:
    """The requests in Dynamo's replay, by that interpreter.

    Raises:
        subprocess.CalledProcessError: It failed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "trace.jsonl").open("w") as lines:
            for one in requests:
                row = {
                    "timestamp": one.arrival_s * 1000,
                    "input_length": one.input_tokens,
                    "output_length": one.output_tokens,
                    "hash_ids": list(one.block_hashes),
                }
                lines.write(json.dumps(row) + "\n")
        _write_profile(folder / "profile.npz", times, kv_tokens)
        asked = {
            "trace": str(folder / "trace.jsonl"),
            "profile": str(folder / "profile.npz"),
            "workers": WORKERS,
            "blocks": kv_tokens // BLOCK_TOKENS,
            "block_tokens": BLOCK_TOKENS,
            "batch_tokens": BATCH_TOKENS,
            "sequences": SEQUENCES,
        }
        done = subprocess.run(
            [python, str(PROGRAM)],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            check=True,
            timeout=600,
        )
    said = json.loads(done.stdout.splitlines()[-1])
    rows = [(float(ttft), float(e2e), float(tokens)) for ttft, e2e, tokens in said["requests"]]
    return Served(with_tpot(rows), np.array([row[2] for row in rows]), float(said["hit_rate"]))


def _write_profile(path: Path, times: ServiceTimes, kv_tokens: int) -> None:
    """Step times as a table over prompt tokens, and over KV tokens and context."""
    prompts = np.array([1, 64, 512, 2048, 8192, 32768, 131072], dtype=np.float64)
    context = np.array(CONTEXTS, dtype=np.float64)
    kv = np.linspace(0.0, float(kv_tokens), KV_POINTS)[1:]
    batch = np.clip(kv[:, None] / context[None, :], 1.0, SEQUENCES)
    np.savez(
        path,
        prefill_isl=prompts,
        prefill_ttft_ms=1e3 * (times.p0 + times.p1 * prompts),
        decode_active_kv_tokens=kv,
        decode_context_length=context,
        decode_itl=1e3 * (times.d0 + times.d1 * batch + times.d2 * kv[:, None]),
    )
