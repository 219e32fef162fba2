"""Sequences that run, wait and hold memory in an engine under a steady load, beside the simulator's own series.

The study ran Llama-3.1-8B with adapters for an hour at one rate each. Adapters slow a step by an amount that the
simulator does not model, so each run gives its own speed: the host overhead at which the mean TPOT is the run's.
Everything else is the simulator's: with that speed, how many sequences run, how much memory they hold, how long
the first token takes. Lengths are those of recorded chat requests, scaled to the run's means; arrivals are
Poisson.
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
RUNS = "digital_twin_modelling/real_results/llama-3.1-8b-instruct/"
KV_TOKENS = 334_944
"""Of the study's card beside this model, with few adapter slots; more slots leave less."""
MOST_SLOTS = 32
ENGINE = EngineSettings(2048, 1024)
SPAN_S, WARM_UP = 300.0, 0.3
"""Simulated time of one run, and the part of it that is left out of means."""


@dataclass(frozen=True, slots=True)
class StudyRun:
    """One run: what was asked for and what was seen; ``kv_share`` is NaN where the memory is not known."""

    rate: float
    prompt: float
    output: float
    tpot_s: float
    ttft_s: float
    running: float
    kv_share: float


def study_runs(folder: Path) -> list[StudyRun]:
    """Runs of the model that keep up with their load."""
    table = csv.read_csv(folder / "runs.csv.gz")
    found = []
    for row in table.to_pylist():
        if not row["run"].startswith(RUNS) or not row["wait_mean"] < 1.0 or row["ticks"] < 300:
            continue
        done, known = row["success"], row["max_loras"] <= MOST_SLOTS
        found.append(
            StudyRun(
                done / row["duration_s"],
                row["in_tokens"] / done,
                row["out_tokens"] / done,
                row["tpot_mean_ms"] / 1e3,
                row["ttft_median_ms"] / 1e3,
                row["run_mean"],
                row["kv_mean"] if known else float("nan"),
            )
        )
    return sorted(found, key=lambda run: run.rate)


@dataclass(frozen=True, slots=True)
class Compared:
    """Simulated over measured, less 1."""

    run: StudyRun
    running: float
    kv_share: float
    ttft: float


def compared(runs: Sequence[StudyRun], chat: Sequence[Request]) -> Iterator[Compared]:
    """Each run in the simulator; ``chat`` gives the form of the lengths."""
    for number, run in enumerate(runs):
        requests = _requests(run, chat, number)
        made = _at_speed(requests, run)
        line = made.result.timeline
        steady = slice(int(WARM_UP * SPAN_S / line.step_s), int(SPAN_S / line.step_s))
        running, kv = (float(np.sum(series, axis=1)[steady].mean()) for series in (line.running, line.kv_use))
        ttft = float(np.median(made.times[:, 0]))
        yield Compared(run, running / run.running - 1.0, kv / run.kv_share - 1.0, ttft / run.ttft_s - 1.0)


def _at_speed(requests: Sequence[Request], run: StudyRun) -> OneReplica:
    """The run with the host overhead at which the mean TPOT is the measured one, by halving."""
    times, low, high = load_catalog().facts(MODEL, GPU, 1).times, 0.0, run.tpot_s
    while True:
        middle = (low + high) / 2
        made = one_replica(requests, ENGINE, replace(times, host_overhead=middle), KV_TOKENS)
        tpot = float(np.nanmean(made.times[:, 2]))
        if abs(tpot / run.tpot_s - 1.0) < 0.005 or high - low < 1e-5:
            return made
        low, high = (middle, high) if tpot < run.tpot_s else (low, middle)


def _requests(run: StudyRun, chat: Sequence[Request], seed: int) -> list[Request]:
    rng = np.random.default_rng([7, seed])
    at = np.sort(rng.uniform(0.0, SPAN_S, int(rng.poisson(run.rate * SPAN_S))))
    drawn = rng.integers(0, len(chat), len(at))
    prompts = _scaled(np.array([chat[i].input_tokens for i in drawn], dtype=np.float64), run.prompt)
    outputs = _scaled(np.array([chat[i].output_tokens for i in drawn], dtype=np.float64), run.output)
    return [Request(i, float(at[i]), int(prompts[i]), int(outputs[i]), int(outputs[i])) for i in range(len(at))]


def _scaled(lengths: FloatArray, mean: float) -> FloatArray:
    scaled: FloatArray = np.maximum(np.rint(lengths * mean / lengths.mean()), 1.0)
    return scaled
