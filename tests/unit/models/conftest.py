"""A small queue model that writes latency samples: two GPU types, first-come prefill, shared decode steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from data.catalog.types import ServiceTimes
from data.types import Status
from models.features import EndpointKind
from models.gbm import BoostSettings
from models.samples import KindKey, Samples, samples_from_tables
from models.training import Trained, TrainingSettings, train

MODEL = "toy@1"
FAST = ServiceTimes(p0=0.006, p1=2e-5, p2=1e-9, d0=0.006, d1=1e-5, d2=4e-8)
SLOW = ServiceTimes(p0=0.02, p1=6e-5, p2=4e-9, d0=0.02, d1=4e-5, d2=2e-7)
KINDS: dict[KindKey, EndpointKind] = {
    (MODEL, "fast", 1): EndpointKind("fast", 1, MODEL, 8192, 400_000, FAST),
    (MODEL, "slow", 1): EndpointKind("slow", 1, MODEL, 8192, 200_000, SLOW),
}


@dataclass
class ToyEndpoint:
    """Exact state of one endpoint: when its prefill queue ends, and what waits and runs."""

    kind: EndpointKind
    free_at: float = 0.0
    busy_since: float = 0.0
    jobs: list[tuple[float, float, float, float]] | None = None  # first token, end, uncached, prompt + output


def toy_rows(requests: int, seed: int, rate: float = 9.0, timeout_s: float | None = None) -> list[dict[str, Any]]:
    """Joined decision and outcome rows of a run; the truth differs from the prior by a factor and by noise."""
    random = np.random.default_rng(seed)
    endpoints = [ToyEndpoint(kind, jobs=[]) for kind in list(KINDS.values()) * 2]
    clock = 0.0
    rows = []
    for number in range(requests):
        clock += random.exponential(1.0 / rate)
        prompt = int(np.clip(random.lognormal(7.5, 1.2), 16, 60_000))
        hit = int(prompt * random.choice([0.0, 0.0, 0.5, 0.9]))
        output = int(np.clip(random.lognormal(4.5, 0.7), 1, 2000))
        rows.append(toy_row(endpoints[random.integers(4)], clock, prompt, hit, output, random, timeout_s))
        rows[-1]["request_id"] = number
    return rows


def toy_row(
    endpoint: ToyEndpoint,
    now: float,
    prompt: int,
    hit: int,
    output: int,
    random: np.random.Generator,
    timeout_s: float | None,
) -> dict[str, Any]:
    """Serve one request and tell what the router saw and what came out."""
    kind, times = endpoint.kind, endpoint.kind.times
    jobs = endpoint.jobs = [job for job in endpoint.jobs or [] if job[1] > now]
    waiting = [job for job in jobs if job[0] > now]
    running = len(jobs) - len(waiting)
    uncached = prompt - hit
    kv = min(sum(job[3] for job in jobs if job[0] <= now), kind.kv_capacity_tokens)
    step = times.decode_s(running, kv)
    work = times.p1 * uncached + times.p2 * uncached * (hit + uncached / 2)
    factor = 1.25 if kind.gpu_type == "slow" else 0.9
    begin = max(endpoint.free_at, now)
    # The head of the queue is worked on since the latest first token, or since it came.
    head_since = max([job[0] for job in jobs if job[0] <= now], default=0.0)
    if waiting:
        head_since = max(head_since, endpoint.busy_since)
    own = factor * (work + step * (1 + uncached / 8192)) * random.lognormal(0, 0.08)
    ttft = begin - now + own
    tpot = (1.1 * times.decode_s(running + len(waiting) + 1, kv + prompt) + 0.01 * work) * random.lognormal(
        0, 0.06
    )
    queued_work = sum(times.p1 * job[2] + times.p2 * job[2] ** 2 / 2 for job in waiting)
    row: dict[str, Any] = {
        "attempt": 0,
        "decided_s": now,
        "model": MODEL,
        "gpu_type": kind.gpu_type,
        "gpus": 1,
        "input_tokens": prompt,
        "hit_tokens": hit,
        "output_budget": 2 * output,
        "expected_output_tokens": 115.0,
        "queue_depth": float(len(waiting)),
        "running": float(running),
        "waiting_prefill_tokens": float(sum(job[2] for job in waiting)),
        "waiting_prefill_s": queued_work,
        "prefill_elapsed_s": now - head_since if waiting else 0.0,
        "inflight_tokens": float(sum(job[3] for job in jobs)),
        "kv_use": kv / kind.kv_capacity_tokens,
        "kv_tokens": float(kv),
        "prefill_load": 0.25,
        "batch_token_budget": int(kind.batch_token_budget),
        "metrics_age_s": float(random.uniform(0.05, 0.3)),
        "status": int(Status.COMPLETED),
        "ttft_s": ttft,
        "tpot_s": tpot if output > 1 else None,
        "e2e_s": ttft + tpot * (output - 1),
        "output_tokens": output,
    }
    if timeout_s is not None and ttft > timeout_s:
        row |= {"status": int(Status.CANCELLED), "ttft_s": None, "tpot_s": None, "e2e_s": timeout_s}
        return row
    if begin <= now:
        endpoint.busy_since = now
    endpoint.free_at = now + ttft
    jobs.append((now + ttft, now + row["e2e_s"], float(uncached), float(prompt + output)))
    return row


ToyTable = Callable[..., pa.Table]


@pytest.fixture(scope="session")
def toy_table() -> ToyTable:
    """Makes the joined table of a toy run; keywords as in ``toy_rows``."""

    def make(requests: int, seed: int, **options: Any) -> pa.Table:
        return pa.Table.from_pylist(toy_rows(requests, seed, **options))

    return make


@pytest.fixture(scope="session")
def toy_kinds() -> dict[KindKey, EndpointKind]:
    return KINDS


@pytest.fixture(scope="session")
def toy_samples(toy_table: ToyTable) -> Samples:
    """Two runs of 4,000 requests, the second at a lower load."""
    return samples_from_tables([toy_table(4000, 1), toy_table(4000, 2, rate=6.0)], KINDS)


@pytest.fixture(scope="session")
def toy_settings() -> TrainingSettings:
    return TrainingSettings(boost=BoostSettings(mean_trees=60, quantile_trees=40))


@pytest.fixture(scope="session")
def toy_model(toy_samples: Samples, toy_settings: TrainingSettings) -> Trained:
    """A model of the toy runs, trained once for all tests."""
    return train(toy_samples, toy_settings, "2026-01-01T00:00:00Z")
