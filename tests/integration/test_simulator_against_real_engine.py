"""The simulator against recorded runs of a real engine: same requests, same settings, step times from elsewhere.

Each run is open loop at 10 requests/s into one engine, about twice what it can carry, so that it shows prefill,
decode, batching, memory and the queue at once.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fidelity.engine_replay import RecordedRun, recorded_run, replayed
from benchmarks.fidelity.operator_times import Shape, fitted_times, link_times
from data.catalog.load import load_catalog
from data.catalog.types import ServiceTimes
from data.types import FloatArray

HOST_OVERHEAD_S = 0.0035
"""Scheduling, sampling and detokenisation of one step, which step times of kernels alone leave out."""
CARD = "RTX-PRO-6000"


@pytest.fixture(scope="module")
def runs(shared_data: Path) -> Path:
    """Recordings and operator profiles."""
    return shared_data / "llmservingsim"


@pytest.fixture(scope="module")
def run_of_llama(runs: Path) -> RecordedRun:
    """300 prompts of a chat data set at 10/s on one RTX PRO 6000 with Llama-3.1-8B."""
    return recorded_run(runs / "vllm_runs" / "RTXPRO6000" / "Llama-3.1-8B")


def ratios(run: RecordedRun, times: ServiceTimes, kv_tokens: int, overhead_s: float = 0.0) -> FloatArray:
    """Simulated over measured less 1: TTFT, E2E and TPOT of each request."""
    return replayed(run, replace(times, host_overhead=overhead_s), kv_tokens) / run.times - 1.0


@pytest.mark.shared_data
def test_catalog_times_are_below_the_real_engine_by_no_more_than_a_third(run_of_llama: RecordedRun) -> None:
    """Coefficients without host overhead: too fast in all three times, worst where a queue adds it up."""
    facts = load_catalog().facts("llama-3.1-8b", CARD, 1)
    ttft, e2e, tpot = np.median(ratios(run_of_llama, facts.times, facts.kv_capacity_tokens), axis=0)
    assert -0.35 < ttft < 0.0
    assert -0.20 < e2e < 0.0
    assert -0.15 < tpot < 0.0


@pytest.mark.shared_data
def test_one_host_overhead_explains_the_rest(run_of_llama: RecordedRun) -> None:
    """With one constant a step, queueing, batching and memory follow the engine request by request."""
    facts = load_catalog().facts("llama-3.1-8b", CARD, 1)
    errors = np.abs(ratios(run_of_llama, facts.times, facts.kv_capacity_tokens, HOST_OVERHEAD_S))
    ttft, e2e, tpot = np.median(errors, axis=0)
    assert ttft < 0.10
    assert e2e < 0.05
    assert tpot < 0.05
    assert np.quantile(errors[:, 1], 0.9) < 0.15


@pytest.mark.shared_data
def test_an_engine_whose_memory_is_short_is_met_from_its_operators_alone(runs: Path) -> None:
    """An RTX 4090 that holds 41,408 tokens and preempts: nothing is fitted to the run."""
    run = recorded_run(runs / "vllm_runs" / "RTX4090" / "Llama-3.1-8B")
    found = fitted_times(runs / "op_profiles" / "RTX4090" / "meta-llama" / "Llama-3.1-8B" / "tp1", Shape(32, 4096))
    assert max(found.prefill_error, found.decode_error) < 0.10
    ttft, e2e, _ = np.median(np.abs(ratios(run, found.times, run.kv_tokens)), axis=0)
    assert ttft < 0.15
    assert e2e < 0.08


@pytest.mark.shared_data
def test_the_link_between_two_cards_is_what_two_cards_lack(runs: Path) -> None:
    """Qwen3-32B over PCIe: one bandwidth, which the step times leave out, brings all three times near at once."""
    run, shape = recorded_run(runs / "vllm_runs" / "RTXPRO6000" / "Qwen3-32B"), Shape(64, 5120)
    facts = load_catalog().facts("qwen3-32b", CARD, 2)
    bare = np.median(ratios(run, facts.times, facts.kv_capacity_tokens, HOST_OVERHEAD_S), axis=0)
    assert (bare < -0.2).all()
    linked = link_times(facts.times, shape, 18.5e9)
    assert (np.median(np.abs(ratios(run, linked, facts.kv_capacity_tokens, HOST_OVERHEAD_S)), axis=0) < 0.05).all()
