"""Load tests of one capacity case, by seed, and the Goodput curve that they draw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.errors import SettingError
from data.types import FloatArray
from models.base import BoolArray
from models.capacity_check import CapacityCase
from planner.sim.load_test import Engine, Sample, draw_sample, serve, serve_alone
from planner.sim.replica import Replica


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How thoroughly a rate is measured.

    Attributes:
        requests: Of one test of a replica (100 to 1,000,000), half as many again for each further one; the first
            sixth is warm-up.
        target_error: Relative standard error at which the search ends (0.001 to 0.5).
        seeds: Tests of one step of the search (4 to 1,000).
        most_seeds: Tests at one rate, at most (``seeds`` to 10,000).
        seed: Of all draws.
    """

    requests: int = 2000
    target_error: float = 0.02
    seeds: int = 6
    most_seeds: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("requests", 100, 1_000_000),
            ("target_error", 0.001, 0.5),
            ("seeds", 4, 1000),
            ("most_seeds", self.seeds, 10_000),
            ("seed", 0, 2**31 - 1),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise SettingError("setting out of range", field=name, value=value, expected=f"{low} to {high}")


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """One load of the Goodput curve: offered requests/s, attainment, and output tokens/s within the targets."""

    rate: float
    attainment: float
    goodput_tokens_per_s: float


class LoadTests:
    """Load tests on the simulated engine; each seed's requests are drawn once.

    Args:
        case: Replica, requests, targets.
        replicas: Replicas that share the load (1 or more).
        settings: Requests and seed.
    """

    def __init__(self, case: CapacityCase, replicas: int, settings: SearchSettings) -> None:
        limits, block = case.limits, case.block_tokens
        self._engine = Engine(
            case.times,
            max(int(limits.kv_capacity_tokens) // block, 1),
            block,
            limits.batch_token_budget,
            limits.max_num_seqs,
        )
        self._case, self._replicas, self._settings = case, replicas, settings
        # A larger group needs more requests before each of its replicas has settled.
        self.requests = settings.requests if replicas == 1 else settings.requests * (replicas + 1) // 2
        self._drawn: list[tuple[Sample, BoolArray, float]] = []

    def _seeded(self, seed: int) -> tuple[Sample, BoolArray, float]:
        """Requests, which of them count, and the share of those after the warm-up that meets alone."""
        while len(self._drawn) <= seed:
            rng = np.random.default_rng([self._settings.seed, len(self._drawn), self._replicas])
            shape, case = self._case.shape, self._case
            sample = draw_sample(
                shape.input_tokens, shape.output_tokens, shape.length_variation, self.requests,
                case.context_tokens, rng,
            )  # fmt: skip
            alone = serve_alone(self._engine, sample).met(case.slo, sample.outputs)
            warm = len(alone) // 6
            share = float(alone[warm:].mean())
            alone[:warm] = False
            self._drawn.append((sample, alone, share))
        return self._drawn[seed]

    def met_alone(self, seed: int) -> float:
        """Share of the requests after the warm-up that meet the targets on an idle replica."""
        return self._seeded(seed)[2]

    def attainment(self, seed: int, rate: float) -> float:
        """Share of the requests that count which meet the targets at this rate."""
        return self.point(seed, rate).attainment

    def point(self, seed: int, rate: float) -> LoadPoint:
        """One test."""
        sample, counted, _ = self._seeded(seed)
        arrivals_s = np.cumsum(sample.gaps) / rate
        met = self._serve(sample, arrivals_s)
        warm = len(met) // 6
        span_s = float(arrivals_s[-1] - arrivals_s[warm - 1])
        good = float(sample.outputs[warm:][met[warm:]].sum()) / span_s
        return LoadPoint(rate, float((met & counted).sum() / max(counted.sum(), 1)), good)

    def throughput(self, seed: int) -> float:
        """Requests/s of replicas that never run out of work: so many times that of one.

        It is taken over the middle half of the requests that end.
        """
        sample, _, _ = self._seeded(seed)
        served = serve([self._engine.replica()], sample, np.zeros(len(sample.gaps)))
        ends = np.sort(served.finished_s[np.isfinite(served.finished_s)])
        first, last = len(ends) // 4, 3 * len(ends) // 4
        return float(self._replicas * (last - first) / (ends[last] - ends[first]))

    def _serve(self, sample: Sample, arrivals_s: FloatArray) -> BoolArray:
        return serve(self._fresh(), sample, arrivals_s).met(self._case.slo, sample.outputs)

    def _fresh(self) -> list[Replica]:
        return [self._engine.replica() for _ in range(self._replicas)]


def goodput_curve(
    case: CapacityCase, replicas: int, rates: FloatArray, settings: SearchSettings | None = None
) -> list[LoadPoint]:
    """Attainment and Goodput at each rate (requests/s, above 0), means over ``settings.seeds`` tests."""
    chosen = settings or SearchSettings()
    tests = LoadTests(case, replicas, chosen)
    found = []
    for rate in rates.tolist():
        points = [tests.point(seed, rate) for seed in range(chosen.seeds)]
        found.append(
            LoadPoint(
                rate,
                float(np.mean([point.attainment for point in points])),
                float(np.mean([point.goodput_tokens_per_s for point in points])),
            )
        )
    return found
