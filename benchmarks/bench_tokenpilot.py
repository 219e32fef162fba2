"""TokenPilot's decision with a trained forest, and the parts it is made of: features, prior, forest.

A decision predicts TTFT and TPOT with quantiles for every candidate (the prior) and for the best of them (the
forest). ``p50`` is wall time, ``p99`` processor time of the deciding thread: on a machine that other work shares
the wall's 99th percentile is the time slice of the others; it is given besides, without a target.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lightgbm
import numpy as np

from benchmarks.bench_decision import prompts, table_of
from data.types import FloatArray
from models.base import CategoryCodes
from models.features import LEARNED, NAMES, feature_matrix, hardware_rows
from models.physics import PriorSettings, prior_times
from models.predictor import ResidualPredictor
from models.samples import Samples
from models.signals import Signals, SignalSettings, observe
from models.training import Trained, TrainingSettings, train
from router.candidate_features import CandidateFeatures, endpoint_kinds
from router.endpoints import EndpointTable
from router.leases import LeaseBook
from router.prefix import EventPrefixIndex
from router.registry import make_policy
from router.reports import apply_reports
from router.types import FleetView

Row = dict[str, Any]
CODES = CategoryCodes(("H100",), ("m@1",))
TARGETS_US = {64: 300.0, 100: 300.0, 256: 400.0, 1024: 700.0, 4096: 1500.0}
P99_US = {64: 1000.0, 100: 1000.0}
PARTS = (64, 1024)
REMOTE_US = 15_000.0
"""What llm-d tells of its own predictor: time that a call over HTTP adds to a decision."""
SAMPLES = 20_000


def row(id_: str, value: float, unit: str, reference: str, ratio: float | None, most: float | None) -> Row:
    """One measured value; ``most`` is its bound, if it has one."""
    target, met = ("-", True) if most is None else (f"<= {most:g} {unit}", value <= most)
    return {
        "id": id_,
        "area": "decision",
        "value": value,
        "unit": unit,
        "reference": reference,
        "ratio": ratio,
        "target": target,
        "met": met,
    }


@dataclass(frozen=True)
class Times:
    """Times of one call in microseconds: wall, and processor time of the thread."""

    p50: float
    p99: float
    cpu_p50: float
    cpu_p99: float


def times_us(call: Callable[[int], object], count: int, after: Callable[[int], object] | None = None) -> Times:
    """Quantiles over ``count`` calls, after a tenth of them as warm-up; ``after`` follows each, untimed."""
    wall, cpu = [], []
    for i in range(count):
        cpu_started, started = time.thread_time_ns(), time.perf_counter_ns()
        call(i)
        wall.append(time.perf_counter_ns() - started)
        cpu.append(time.thread_time_ns() - cpu_started)
        if after is not None:
            after(i)
    levels = (0.5, 0.99)
    walls, cpus = np.quantile(wall[count // 10 :], levels) / 1e3, np.quantile(cpu[count // 10 :], levels) / 1e3
    return Times(*walls.tolist(), *cpus.tolist())


def trained_predictor() -> ResidualPredictor:
    """The predictor of :func:`trained`."""
    return trained().predictor


def trained() -> Trained:
    """A forest of the default size, fitted to made-up times around the prior."""
    rng = np.random.default_rng(0)
    features = made_up_features(rng, SAMPLES)
    times = prior_times(features, PriorSettings())
    load = 1.0 + 0.1 * features[:, NAMES.index("running")] / 50 + 0.2 * (features[:, NAMES.index("kv_use")] > 0.5)
    samples = Samples(
        features=features,
        decided_s=np.arange(SAMPLES) * 0.1,
        run=np.zeros(SAMPLES, dtype=np.int64),
        ttft_s=times.ttft_s * load * rng.lognormal(0, 0.1, SAMPLES),
        ttft_bound_s=np.full(SAMPLES, np.nan),
        tpot_s=times.tpot_s * load * rng.lognormal(0, 0.2, SAMPLES),
        gaps=rng.integers(1, 500, SAMPLES).astype(float),
        codes=CODES,
        dropped={},
    )
    return train(samples, TrainingSettings(), "1970-01-01T00:00:00+00:00")


def made_up_features(rng: np.random.Generator, n: int) -> FloatArray:
    """Feature rows of a busy pool."""
    hardware = hardware_rows(endpoint_kinds(table_of(1)), CODES)
    tokens = rng.exponential(8000, n) * (rng.random(n) < 0.5)
    kv_use = rng.random(n)
    signals = Signals(
        queue_depth=np.ceil(tokens / 6000),
        waiting_prefill_tokens=tokens,
        waiting_prefill_s=5e-5 * tokens,
        prefill_elapsed_s=rng.random(n) * 5e-5 * tokens,
        running=np.floor(100 * kv_use),
        inflight_tokens=400_000 * kv_use,
        kv_use=kv_use,
        kv_tokens=400_000 * kv_use,
        metrics_age_s=rng.uniform(0, 0.3, n),
    )
    inputs = rng.integers(100, 30_000, n).astype(float)
    hits = np.floor(inputs * rng.choice([0.0, 0.0, 0.5, 0.9], n))
    return feature_matrix(inputs, hits, 500.0, signals, np.repeat(hardware, n, axis=0))


def busy_pool(n: int, rng: np.random.Generator) -> tuple[EndpointTable, EventPrefixIndex]:
    """A table and an index in which every endpoint has reports, prefixes and work in flight."""
    table, index = table_of(n), EventPrefixIndex(n)
    book = LeaseBook(table)
    for i, request in enumerate(prompts(rng, 4 * n)):
        index.stored(i % n, request.block_hashes)
        book.open(request, i % n, 0.0, 0.5)
    values = rng.integers(0, 9, n).astype(float)
    apply_reports(table, book, np.arange(n), 0.9, values, values, values / 10)
    return table, index


def decision_rows(n: int, predictor: ResidualPredictor | None, count: int) -> list[Row]:
    """``choose`` over ``n`` candidates, with the forest or with the prior alone."""
    rng = np.random.default_rng(1)
    table, index = busy_pool(n, rng)
    requests = prompts(np.random.default_rng(1), count)
    view = FleetView(1.0, table, index, np.zeros(n))
    policy = make_policy("tokenpilot", {}, table, 1, predictor)
    candidates = np.arange(n)
    found = times_us(lambda i: policy.choose(requests[i], candidates, view), count)
    name = f"decision.tokenpilot.{'prior' if predictor is None else 'forest'}.{n}"
    remote = f"llm-d's predictor by its own word, {REMOTE_US / 1e3:g} ms"
    return [
        row(f"{name}.p50", found.p50, "us", remote, found.p50 / REMOTE_US, TARGETS_US[n]),
        row(f"{name}.p99", found.cpu_p99, "us", f"{name}.p50", found.cpu_p99 / found.p50, P99_US.get(n)),
        row(f"{name}.p99_wall", found.p99, "us", f"{name}.p50", found.p99 / found.p50, None),
    ]


def booster_rows(predictor: ResidualPredictor, boosters: list[Any], n: int, count: int) -> list[Row]:
    """The model's answer for ``n`` candidates, against LightGBM's own evaluation of the same trees."""
    features = made_up_features(np.random.default_rng(2), n)
    learned = np.ascontiguousarray(features[:, : len(LEARNED)])

    def lightgbm_call(_: int) -> None:
        for booster in boosters:
            booster.predict(learned, num_threads=1)

    ours = times_us(lambda _: predictor.predict(features), count).p50
    theirs = times_us(lightgbm_call, max(count // 5, 50)).p50
    name = f"decision.predict_all.{n}"
    reference = f"Booster.predict of the same {len(boosters)} forests, {theirs:.0f} us"
    return [row(name, ours, "us", reference, ours / theirs, None)]


def part_rows(n: int, predictor: ResidualPredictor, count: int) -> list[Row]:
    """The parts of a decision over ``n`` candidates, each on its own."""
    table, _ = busy_pool(n, np.random.default_rng(1))
    view = FleetView(1.0, table, EventPrefixIndex(n), np.zeros(n))
    request, candidates, hits = prompts(np.random.default_rng(1), 1)[0], np.arange(n), np.zeros(n)
    builder, settings = CandidateFeatures(table, CODES), SignalSettings()
    matrix = builder.build(request, candidates, hits, view, CODES).copy()
    best = np.ascontiguousarray(matrix[:16])
    calls: dict[str, Callable[[int], object]] = {
        "observe": lambda _: observe(table, candidates, 1.0, settings),
        "features": lambda _: builder.build(request, candidates, hits, view, CODES),
        "prior": lambda _: prior_times(matrix, PriorSettings()),
        "predict_16": lambda _: predictor.predict(best),
    }
    return [
        row(f"decision.tokenpilot.part.{name}.{n}", times_us(call, count).p50, "us", "-", None, None)
        for name, call in calls.items()
    ]


def rows(quick: bool) -> list[Row]:
    """All rows; ``quick`` measures fewer decisions."""
    count = 1000 if quick else 5000
    model = trained()
    boosters = [lightgbm.Booster(model_str=text) for text in model.texts]
    found = booster_rows(model.predictor, boosters, 100, count)
    for n in TARGETS_US:
        found += decision_rows(n, model.predictor, count)
        found += decision_rows(n, None, count)
        if n in PARTS:
            found += part_rows(n, model.predictor, count)
    return found
