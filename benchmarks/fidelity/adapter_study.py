"""Sequences that run and wait, memory and first tokens in an engine under steady loads, beside the simulator's.

The study served Llama-3.1-8B with adapters for an hour at one rate each. Runs with fewer adapter slots than
adapters are left out: there admission waits for a slot, which the simulator does not model. Adapters also slow a
step, so each run gives its own speed: the host overhead at which the mean TPOT is the run's. Memory is the run's
(:data:`KV_BLOCKS`); the time of the front end comes from single requests of the same study. All else is the
simulator's. Lengths are those of recorded chat requests, scaled to the run's means; arrivals are Poisson.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.csv as csv

from benchmarks.fidelity.engine_replay import OneReplica, one_replica
from data.catalog.load import load_catalog
from data.fleet.types import EngineSettings
from data.types import FloatArray, Request

MODEL, GPU = "llama-3.1-8b", "H100"
RUNS = (
    "digital_twin_modelling/real_results/llama-3.1-8b-instruct/",
    "ml_modelling/test_dataset/llama-3.1-8b-instruct/",
)
SINGLE = "find_available_gpu_memory_depending_on_loaded_adapters/llama-3.1-8b-instruct/"
RANK = 16
KV_BLOCKS = {16: 18_500, 32: 17_761, 64: 16_040, 128: 13_252}
"""Blocks of memory by adapter slots of rank 16. The series report used over all blocks, and each of these is the
only number below 26,000 of which every reported share is a whole part. Other slots: on a line between them.
"""
BLOCK_TOKENS = 16
ENGINE = EngineSettings(2048, 1024, BLOCK_TOKENS)
SPAN_S, WARM_UP = 300.0, 0.3
"""Simulated time of one run, and the part of it that is left out of means."""
MOST_WAITING = 10.0
"""A run with more requests in its queue, in the mean over the hour, falls behind."""
MOST_EXCESS = 1.6
"""Where a run falls behind, arrivals are cut to so many times what it served: how long a queue is that only grows
does not change what runs."""


@dataclass(frozen=True, slots=True)
class StudyRun:
    """One run: what was asked for and what was seen.

    Attributes:
        offered, served: Requests/s.
        prompt, output: Mean tokens.
        tpot_s, ttft_s: Mean TPOT, median TTFT.
        running, waiting, kv_share: Means over the run.
        preempted: Preemptions of a request served.
        kv_tokens: What its memory holds.
    """

    offered: float
    served: float
    prompt: float
    output: float
    tpot_s: float
    ttft_s: float
    running: float
    waiting: float
    kv_share: float
    preempted: float
    kv_tokens: int

    @property
    def keeps_up(self) -> bool:
        """Whether it serves what is offered."""
        return self.waiting < MOST_WAITING


@dataclass(frozen=True, slots=True)
class Simulated:
    """The same of the simulator; ``waiting`` is the mean over its own, shorter time."""

    run: StudyRun
    overhead_s: float
    served: float
    ttft_s: float
    running: float
    waiting: float
    kv_share: float
    preempted: float


def study_runs(folder: Path) -> list[StudyRun]:
    """Runs of the model with a slot for every adapter, by offered rate."""
    found = []
    for row in csv.read_csv(folder / "runs.csv.gz").to_pylist():
        slots = row["max_loras"]
        if not row["run"].startswith(RUNS) or row["max_lora_rank"] != RANK or slots < row["adapters"]:
            continue
        if slots > max(KV_BLOCKS) or row["run_mean"] is None:
            continue
        done = row["success"]
        found.append(
            StudyRun(
                row["offered_req_per_s"],
                done / row["duration_s"],
                row["in_tokens"] / done,
                row["out_tokens"] / done,
                row["tpot_mean_ms"] / 1e3,
                row["ttft_median_ms"] / 1e3,
                row["run_mean"],
                row["wait_mean"],
                row["kv_mean"],
                row["preempted"] / done,
                kv_tokens(slots),
            )
        )
    return sorted(found, key=lambda run: run.offered)


def kv_tokens(slots: float) -> int:
    """Memory beside so many adapter slots, in tokens."""
    known, blocks = list(KV_BLOCKS), list(KV_BLOCKS.values())
    if slots < known[0]:
        return int(blocks[0] + (known[0] - slots) * (blocks[0] - blocks[1]) / (known[1] - known[0])) * BLOCK_TOKENS
    return int(np.interp(slots, known, blocks)) * BLOCK_TOKENS


def front_end_s(folder: Path) -> float:
    """First token less one step, of single short requests into an idle engine: what is not the engine's."""
    rows = csv.read_csv(folder / "runs.csv.gz").to_pylist()
    gaps = [row["ttft_median_ms"] - row["tpot_mean_ms"] for row in rows if row["run"].startswith(SINGLE)]
    return float(np.median(gaps)) / 1e3


def simulated(runs: Sequence[StudyRun], lengths: FloatArray, front_s: float) -> Iterator[Simulated]:
    """Each run in the simulator; ``lengths`` (requests, 2) gives the form of prompt and output lengths."""
    for number, run in enumerate(runs):
        requests = _requests(run, lengths, number)
        made, overhead_s = _at_speed(requests, run)
        line = made.result.timeline
        steady = slice(int(WARM_UP * SPAN_S / line.step_s), int(SPAN_S / line.step_s))
        running, waiting, kv = (
            float(np.sum(series, axis=1)[steady].mean()) for series in (line.running, line.waiting, line.kv_use)
        )
        ends = np.array([one.arrival_s for one in requests]) + made.times[:, 1]
        served = float(((ends > WARM_UP * SPAN_S) & (ends <= SPAN_S)).sum() / (SPAN_S * (1.0 - WARM_UP)))
        preempted = made.result.preemptions / len(requests)
        ttft = float(np.median(made.times[:, 0])) + front_s
        yield Simulated(run, overhead_s, served, ttft, running, waiting, kv, preempted)


def _at_speed(requests: Sequence[Request], run: StudyRun) -> tuple[OneReplica, float]:
    """The run with the host overhead at which the mean TPOT is the measured one, by halving."""
    times, low, high = load_catalog().facts(MODEL, GPU, 1).times, 0.0, run.tpot_s
    while True:
        middle = (low + high) / 2
        made = one_replica(requests, ENGINE, replace(times, host_overhead=middle), run.kv_tokens)
        tpot = float(np.nanmean(made.times[:, 2]))
        if abs(tpot / run.tpot_s - 1.0) < 0.005 or high - low < 1e-5:
            return made, middle
        low, high = (middle, high) if tpot < run.tpot_s else (low, middle)


def _requests(run: StudyRun, lengths: FloatArray, seed: int) -> list[Request]:
    rng = np.random.default_rng([7, seed])
    rate = run.offered if run.keeps_up else min(run.offered, MOST_EXCESS * run.served)
    at = np.sort(rng.uniform(0.0, SPAN_S, int(rng.poisson(rate * SPAN_S))))
    drawn = lengths[rng.integers(0, len(lengths), len(at))]
    prompts, outputs = _scaled(drawn[:, 0], run.prompt), _scaled(drawn[:, 1], run.output)
    return [Request(i, float(at[i]), int(prompts[i]), int(outputs[i]), int(outputs[i])) for i in range(len(at))]


def _scaled(lengths: FloatArray, mean: float) -> FloatArray:
    scaled: FloatArray = np.maximum(np.rint(lengths * mean / lengths.mean()), 1.0)
    return scaled
