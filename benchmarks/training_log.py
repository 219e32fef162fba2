"""A made-up decision and outcome log of any length, written by the real log writer, for benchmarks of training.

Loads are drawn for each decision; the times are the prior's, times a smooth function of the load that the prior
does not know, times noise. So there is something to learn, and how much is known.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from data.catalog.load import load_catalog
from data.fleet.reference import reference_fleet
from data.log.settings import LogSettings
from data.log.writer import LogWriter
from data.types import FloatArray, Status
from models.features import EndpointKind, feature_matrix, hardware_rows
from models.hardware import fleet_kinds
from models.physics import PriorSettings, prior_times
from models.samples import SIGNALS, KindKey, codes_of
from models.signals import Signals

FLEET = "mixed-pool"
CHUNK = 50_000
NOISE = 0.15
"""Standard deviation of log time that nothing explains."""
BUDGET, MEAN_OUTPUT = 2048, 220.0
"""Output tokens that callers allow, and that the router expects of their class."""
CANCELLED = 0.01
"""Share of requests that are given up before their first token."""

Columns = dict[str, Any]


def kinds() -> dict[KindKey, EndpointKind]:
    """Hardware of the fleet that the log is of."""
    return fleet_kinds([reference_fleet(FLEET)], load_catalog())


def write_log(folder: Path, rows: int, rate_per_s: float = 40.0, seed: int = 0) -> None:
    """Write ``rows`` decisions with their outcomes, ``rate_per_s`` of them a second on the log's clock."""
    with LogWriter(folder, LogSettings(rotate_age_s=None), writer_id="made") as log:
        for first in range(0, rows, CHUNK):
            count = min(CHUNK, rows - first)
            decisions, outcomes = _chunk(first, count, rate_per_s, np.random.default_rng((seed, first)))
            for decision, outcome in zip(_rows(decisions), _rows(outcomes), strict=True):
                log.decision(decision)
                log.outcome(outcome)


def _chunk(first: int, count: int, rate_per_s: float, rng: np.random.Generator) -> tuple[Columns, Columns]:
    known = kinds()
    names = list(known)
    kind = rng.integers(len(names), size=count)
    fixed = hardware_rows([known[name] for name in names], codes_of(known))[kind]
    inputs = np.clip(rng.lognormal(7.6, 1.0, count), 16, 60_000).astype(np.int64)
    hits = (inputs * rng.choice([0.0, 0.0, 0.5, 0.9], count)).astype(np.int64) // 16 * 16
    signals = _signals(count, np.array([known[name].kv_capacity_tokens for name in names])[kind], rng)
    outputs = np.clip(rng.lognormal(5.0, 0.9, count), 1, 1500).astype(np.int64)
    features = feature_matrix(inputs.astype(float), hits.astype(float), BUDGET, signals, fixed)
    prior = prior_times(features, PriorSettings())
    bend = 0.4 * np.tanh(signals.queue_depth / 4.0) + 0.3 * signals.kv_use**2 - 0.1 * (kind % 3)
    ttft = prior.ttft_s * np.exp(bend + NOISE * rng.standard_normal(count))
    tpot = prior.tpot_s * np.exp(0.2 * signals.running / 64.0 + NOISE * rng.standard_normal(count))
    cancelled = rng.random(count) < CANCELLED
    waited = np.where(cancelled, ttft * rng.random(count), ttft + tpot * (outputs - 1))
    number = np.arange(first, first + count)
    decided = number / rate_per_s
    keys: Columns = {"request_id": number.tolist(), "attempt": [0] * count}
    decisions = keys | {
        "decided_s": decided.tolist(),
        "model": [names[one][0] for one in kind],
        "gpu_type": [names[one][1] for one in kind],
        "gpus": [names[one][2] for one in kind],
        "input_tokens": inputs.tolist(),
        "hit_tokens": hits.tolist(),
        "output_budget": [BUDGET] * count,
        "expected_output_tokens": [MEAN_OUTPUT] * count,
        **{name: getattr(signals, name).tolist() for name in SIGNALS},
    }
    outcomes = keys | {
        "finished_s": (decided + waited).tolist(),
        "status": np.where(cancelled, int(Status.CANCELLED), int(Status.COMPLETED)).tolist(),
        "ttft_s": np.where(cancelled, np.nan, ttft).tolist(),
        "tpot_s": np.where(cancelled | (outputs < 2), np.nan, tpot).tolist(),
        "e2e_s": waited.tolist(),
        "output_tokens": np.where(cancelled, 0, outputs).tolist(),
    }
    return decisions, outcomes


def _signals(count: int, capacity: FloatArray, rng: np.random.Generator) -> Signals:
    queue = rng.geometric(0.4, count) - 1.0
    waiting = queue * rng.lognormal(7.2, 0.6, count)
    running = rng.integers(0, 64, count).astype(float)
    kv_use = np.clip(running / 64.0 * rng.uniform(0.4, 1.1, count), 0.0, 1.0)
    return Signals(
        queue_depth=queue,
        waiting_prefill_tokens=waiting,
        waiting_prefill_s=waiting * 4e-5,
        prefill_elapsed_s=np.where(queue > 0, rng.exponential(0.02, count), 0.0),
        running=running,
        inflight_tokens=running * rng.uniform(800, 3000, count),
        kv_use=kv_use,
        kv_tokens=kv_use * capacity,
        metrics_age_s=rng.uniform(0.0, 1.0, count),
        prefill_load=np.clip(0.1 * queue + rng.uniform(0.0, 0.3, count), 0.0, 1.0),
    )


def _rows(columns: Columns) -> list[Columns]:
    names = list(columns)
    return [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)]
