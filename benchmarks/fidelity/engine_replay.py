"""A recorded run of a real engine, request by request, beside the same requests in the simulator."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from data.catalog.load import load_catalog
from data.catalog.types import ServiceTimes
from data.fleet.types import EngineSettings, Fleet, GpuPool, Model, Placed, ReplicaConfig, Site, WorkloadClass
from data.types import FloatArray, Request, Slo
from planner.sim.result import RunResult
from planner.sim.run import simulate
from planner.sim.settings import SimSettings
from router.build import endpoint_specs
from router.endpoints import EndpointTable
from router.registry import make_policy

STAND_IN = ("llama-3.1-8b", "RTX-PRO-6000")
"""Model and card whose names the fleet uses; step times and memory are replaced by those of the run."""


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """What one engine did.

    Attributes:
        requests: In the order in which they came, on the engine's clock.
        times: Shape (requests, 3): TTFT, E2E and TPOT, seconds.
        engine: Its settings.
        kv_tokens: What its cache holds, if the recording says; 0 = it does not.
    """

    requests: tuple[Request, ...]
    times: FloatArray
    engine: EngineSettings
    kv_tokens: int


@dataclass(slots=True)
class Ends:
    """Keeps how each request ended."""

    rows: dict[int, dict[str, Any]] = field(default_factory=dict)

    def decision(self, row: dict[str, Any]) -> None:
        """Decisions are of no interest here."""

    def outcome(self, row: dict[str, Any]) -> None:
        """One request ended; there are no repeats here."""
        self.rows[row["request_id"]] = row


def recorded_run(folder: Path) -> RecordedRun:
    """Read ``requests.jsonl`` and ``meta.json`` of one run."""
    with (folder / "requests.jsonl").open() as lines:
        seen = sorted((json.loads(line) for line in lines), key=lambda row: row["queued_ts"])
    meta = json.loads((folder / "meta.json").read_text())
    engine = meta["engine_kwargs"]
    requests = tuple(
        Request(
            i, row["queued_ts"] - seen[0]["queued_ts"], row["input_toks"], row["output_toks"], row["output_toks"]
        )
        for i, row in enumerate(seen)
    )
    rows = [
        (row["first_token_ts"] - row["queued_ts"], row["last_token_ts"] - row["queued_ts"], row["output_toks"])
        for row in seen
    ]
    settings = EngineSettings(engine["max_num_batched_tokens"], engine["max_num_seqs"])
    return RecordedRun(requests, with_tpot(rows), settings, meta.get("kv_cache", {}).get("num_kv_tokens") or 0)


def replayed(run: RecordedRun, times: ServiceTimes, kv_tokens: int) -> FloatArray:
    """TTFT, E2E and TPOT of the same requests on one simulated replica."""
    return one_replica(run.requests, run.engine, times, kv_tokens).times


@dataclass(frozen=True, slots=True)
class OneReplica:
    """A simulated run of one replica, and TTFT, E2E and TPOT of its requests (one row each, seconds)."""

    result: RunResult
    times: FloatArray


def one_replica(
    requests: Sequence[Request],
    engine: EngineSettings,
    times: ServiceTimes,
    kv_tokens: int,
    timeline_s: float = 5.0,
) -> OneReplica:
    """Run requests on one replica with these step times and so much memory, without noise.

    The timeline has a point every ``timeline_s`` seconds.
    """
    model, gpu = STAND_IN
    fleet = Fleet(
        name="replay",
        links=(),
        classes=(WorkloadClass("any", Slo()),),
        tenants=(),
        sites=(Site("here", "compute", "home"),),
        pools=(GpuPool("here", gpu, 1),),
        models=(Model("model", "v1", model, 131_072, engine),),
        configs=(ReplicaConfig("config", "model@v1", gpu, 1),),
        placement=(Placed("here", "config", 1),),
    )
    specs = [
        replace(spec, times=times, kv_capacity_tokens=kv_tokens)
        for spec in endpoint_specs(fleet, load_catalog(), fleet.placement)
    ]
    table, ends = EndpointTable(specs), Ends()
    policy = make_policy("round_robin", {}, table, 0)
    settings = SimSettings(step_noise=0.0, timeline_s=timeline_s)
    result = simulate(fleet, specs, requests, policy, settings, table=table, sink=ends)
    rows = [ends.rows[request.request_id] for request in requests]
    return OneReplica(result, with_tpot([(row["ttft_s"], row["e2e_s"], row["output_tokens"]) for row in rows]))


def with_tpot(rows: list[tuple[float, float, float]]) -> FloatArray:
    """TTFT, E2E and output tokens to TTFT, E2E and TPOT."""
    ttft, e2e, tokens = np.array(rows, dtype=np.float64).T
    return np.column_stack([ttft, e2e, (e2e - ttft) / np.maximum(tokens - 1, 1)])
