"""The simulator against a recorded run of a real engine: same requests, same settings, the catalog's coefficients.

The run is open loop at 10 requests/s into one engine, about twice what it can carry, so that it shows prefill,
decode, batching and the queue at once.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from data.catalog.load import load_catalog
from data.fleet.types import EngineSettings, Fleet, GpuPool, Model, Placed, ReplicaConfig, Site, WorkloadClass
from data.types import Request, Slo
from planner.sim.run import simulate
from planner.sim.settings import SimSettings
from router.build import endpoint_specs
from router.endpoints import EndpointTable
from router.registry import make_policy

HOST_OVERHEAD_S = 0.0035
"""Scheduling, sampling and detokenisation of one step, which step times of kernels alone leave out."""


@dataclass
class Outcomes:
    """Keeps the outcomes of a run, by request."""

    rows: dict

    def decision(self, row):
        """Decisions are of no interest here."""

    def outcome(self, row):
        """One attempt ended; there are no repeats here."""
        self.rows[row["request_id"]] = row


def replayed(folder: Path, catalog_model: str, tensor_parallel: int, overhead_s: float = 0.0):
    """``(measured, simulated)``; each has columns TTFT, E2E and TPOT in seconds, one row a request."""
    with (folder / "requests.jsonl").open() as lines:
        seen = sorted((json.loads(line) for line in lines), key=lambda row: row["queued_ts"])
    engine = json.loads((folder / "meta.json").read_text())["engine_kwargs"]
    first_s = seen[0]["queued_ts"]
    requests = [
        Request(number, row["queued_ts"] - first_s, row["input_toks"], row["output_toks"], row["output_toks"])
        for number, row in enumerate(seen)
    ]
    gpu = "RTX-PRO-6000"
    settings = EngineSettings(engine["max_num_batched_tokens"], engine["max_num_seqs"])
    fleet = Fleet(
        name="replay",
        links=(),
        classes=(WorkloadClass("any", Slo()),),
        tenants=(),
        sites=(Site("here", "compute", "home"),),
        pools=(GpuPool("here", gpu, tensor_parallel),),
        models=(Model("model", "v1", catalog_model, 131_072, settings),),
        configs=(ReplicaConfig("config", "model@v1", gpu, tensor_parallel),),
        placement=(Placed("here", "config", 1),),
    )
    specs = endpoint_specs(fleet, load_catalog(), fleet.placement)
    specs = [replace(spec, times=replace(spec.times, host_overhead=overhead_s)) for spec in specs]
    table, sink = EndpointTable(specs), Outcomes({})
    policy = make_policy("round_robin", {}, table, 0)
    simulate(fleet, specs, requests, policy, SimSettings(step_noise=0.0), table=table, sink=sink)
    measured = [
        (row["first_token_ts"] - row["queued_ts"], row["last_token_ts"] - row["queued_ts"], row["output_toks"])
        for row in seen
    ]
    simulated = [
        (row["ttft_s"], row["e2e_s"], row["output_tokens"])
        for row in (sink.rows[number] for number in range(len(seen)))
    ]
    return with_tpot(measured), with_tpot(simulated)


def with_tpot(rows):
    """TTFT, E2E and output tokens to TTFT, E2E and TPOT."""
    ttft, e2e, tokens = np.array(rows, dtype=float).T
    return np.column_stack([ttft, e2e, (e2e - ttft) / np.maximum(tokens - 1, 1)])


@pytest.fixture(scope="module")
def run_of_llama(shared_data):
    """300 prompts of a chat data set at 10/s on one RTX PRO 6000 with Llama-3.1-8B."""
    return shared_data / "llmservingsim" / "vllm_runs" / "RTXPRO6000" / "Llama-3.1-8B"


@pytest.mark.shared_data
def test_catalog_times_are_below_the_real_engine_by_no_more_than_a_third(run_of_llama):
    """Coefficients without host overhead: too fast in all three times, worst where a queue adds it up."""
    measured, simulated = replayed(run_of_llama, "llama-3.1-8b", 1)
    ttft, e2e, tpot = np.median(simulated / measured - 1, axis=0)
    assert -0.35 < ttft < 0.0
    assert -0.20 < e2e < 0.0
    assert -0.15 < tpot < 0.0


@pytest.mark.shared_data
def test_one_host_overhead_explains_the_rest(run_of_llama):
    """With one constant a step, queueing, batching and memory follow the engine request by request."""
    measured, simulated = replayed(run_of_llama, "llama-3.1-8b", 1, HOST_OVERHEAD_S)
    errors = np.abs(simulated / measured - 1)
    ttft, e2e, tpot = np.median(errors, axis=0)
    assert ttft < 0.10
    assert e2e < 0.05
    assert tpot < 0.05
    assert np.quantile(errors[:, 1], 0.9) < 0.15
