"""TokenPilot's compiled stages against the same rules array by array, and against the forest on all candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from data.types import Slo
from models.base import Prediction
from models.features import INDEX, NAMES
from models.physics import PriorPredictor
from router.endpoints import EndpointTable
from router.pilot_score import PRICE, SCORE, allowed_s, expected_tokens, score_arguments, score_parts
from router.pilot_stages import near_best, second_stage
from router.policies.base import PolicyContext
from router.prefix import EventPrefixIndex
from router.tokenpilot import TokenPilot, TokenPilotSettings
from router.types import FleetView, RouteRequest

SLOS = (Slo(), Slo(ttft_s=0.5), Slo(tpot_s=0.03), Slo(ttft_s=1.0, tpot_s=0.05), Slo(deadline_s=9.0))
REQUEST = RouteRequest(0, "m@1", "t", "chat", "A", 2000, 400, 150.0, (), 16, "", Slo())
DEFAULTS = TokenPilotSettings()


def within(target: np.ndarray, median: np.ndarray, upper: np.ndarray, least_spread: float) -> np.ndarray:
    spread = np.maximum(np.log(upper / median) / NormalDist().inv_cdf(0.9), least_spread)
    chance: np.ndarray = ndtr(np.log(np.maximum(target, 1e-9) / median) / spread)
    return chance


def plain_parts(request: RouteRequest, rows: np.ndarray, told: Prediction, rtt: np.ndarray) -> np.ndarray:
    """Equations (1) to (7) of docs/tokenpilot.md on whole columns, with the default settings."""
    u, h, r, q, p1, p2, d1, d2 = (
        rows[:, INDEX[name]]
        for name in ("uncached_tokens", "hit_tokens", "running", "queue_depth", "p1", "p2", "d1", "d2")
    )
    ttft, tpot, slo, n = told.ttft_s, told.tpot_s, request.slo, expected_tokens(request)
    meets, spread = np.ones(len(rows)), DEFAULTS.least_spread
    if slo.ttft_s is not None:
        meets = meets * within(slo.ttft_s - rtt, ttft[:, 0], ttft[:, 1], spread)
    if slo.tpot_s is not None:
        meets = meets * within(np.full(len(rows), slo.tpot_s), tpot[:, 0], tpot[:, 1], spread)
    if slo.deadline_s is not None:
        done, late = ttft[:, 0] + n * tpot[:, 0], ttft[:, 1] + n * tpot[:, 1]
        meets = meets * within(slo.deadline_s - rtt, done, late, spread)
    completion = rtt + ttft[:, 0] + n * tpot[:, 0]
    prefill = p1 * u + p2 * u * (h + u / 2)
    harm = prefill * (r + q) + n * (d1 + d2 * (request.input_tokens + n / 2)) * r
    again = (p1 + p2 * request.input_tokens / 2).min()
    worth, lost = request.weight * n, np.zeros(len(rows))
    if slo.tpot_s is not None:
        later = 1.0 + (prefill / n + d1 + d2 * (request.input_tokens + n / 2)) / tpot[:, 0]
        target = np.full(len(rows), slo.tpot_s)
        before = within(target, tpot[:, 0], tpot[:, 1], spread)
        lost = worth * r * (before - within(target, later * tpot[:, 0], later * tpot[:, 1], spread))
    seconds = completion + DEFAULTS.harm_price * harm + DEFAULTS.eviction_price * u * again
    price = worth * DEFAULTS.delay_price * seconds / allowed_s(request)
    score = worth * meets - DEFAULTS.loss_price * lost - price
    return np.array([meets, completion, harm, lost, worth * meets, price, score])


def arguments_of(request: RouteRequest) -> Any:
    s = DEFAULTS
    prices = (s.harm_price, s.eviction_price, s.loss_price)
    return score_arguments(request, s.delay_price, prices, (s.spread_factor, s.least_spread))


def random_case(seed: int, n: int, slo: Slo) -> tuple[RouteRequest, np.ndarray, Prediction, np.ndarray]:
    random = np.random.default_rng(seed)
    rows = random.random((n, len(NAMES))) * random.choice([0.0, 1e-3, 1.0, 100.0], size=len(NAMES))
    ttft, tpot = random.lognormal(-1.0, 1.5, (n, 2)), random.lognormal(-4.0, 1.0, (n, 2))
    told = Prediction((0.5, 0.9), np.sort(ttft), np.sort(tpot), "x")
    weight = float(random.choice([0.5, 1.0, 8.0]))
    return replace(REQUEST, slo=slo, weight=weight), rows, told, random.random(n) * 0.3


CASES = (st.integers(0, 2**32), st.integers(1, 30), st.sampled_from(SLOS))


@settings(deadline=None, max_examples=80)
@given(*CASES)
def test_the_score_is_its_equations(seed: int, n: int, slo: Slo) -> None:
    request, rows, told, rtt = random_case(seed, n, slo)
    got = score_parts(rows, told, rtt, arguments_of(request))
    np.testing.assert_allclose(got, plain_parts(request, rows, told, rtt), rtol=1e-9, atol=1e-9)


@settings(deadline=None, max_examples=80)
@given(*CASES, st.sampled_from((0.0, 0.01, 0.5)))
def test_the_second_stage_picks_the_longest_holders_among_near_ties(
    seed: int, n: int, slo: Slo, near_tie: float
) -> None:
    request, rows, told, rtt = random_case(seed, n, slo)
    rows[:, INDEX["hit_tokens"]] = np.random.default_rng(seed).integers(0, 3, n)
    arguments, order = arguments_of(request), np.random.default_rng(seed).permutation(n)
    columns = (INDEX["hit_tokens"], INDEX["metrics_age_s"])
    placed = np.empty(n)
    placed[order] = rtt
    near, newest_s = second_stage(rows, told, placed, order, columns, near_tie, arguments)
    parts = score_parts(rows, told, rtt, arguments)
    worth, best = request.weight * expected_tokens(request), int(parts[SCORE].argmax())
    tied = parts[SCORE] >= parts[SCORE][best] - near_tie * min(worth, parts[PRICE][best])
    hits = np.where(tied, rows[:, INDEX["hit_tokens"]], -1.0)
    assert near.tolist() == np.flatnonzero(hits == hits.max()).tolist()
    assert newest_s == rows[:, INDEX["metrics_age_s"]].min()


def test_a_tie_is_as_near_as_the_lesser_of_worth_and_price() -> None:
    hits = np.array([0.0, 5.0, 9.0])
    score, price = np.array([10.0, 9.95, 9.0]), np.array([4.0, 4.0, 4.0])
    assert near_best(score, price, hits, 0.01, 100.0).tolist() == [0]
    assert near_best(score, price + 6.0, hits, 0.01, 100.0).tolist() == [1]
    assert near_best(score, price + 6.0, hits, 0.01, 1.0).tolist() == [0]
    assert near_best(score, price, hits, 0.5, 100.0).tolist() == [2]


MakeTable = Callable[..., EndpointTable]


@pytest.mark.parametrize("slo", SLOS)
def test_the_first_stage_keeps_the_best_by_the_prior(
    make_table: MakeTable, make_request: Callable[..., RouteRequest], slo: Slo
) -> None:
    """What is kept is told by the plain equations over the prior's own answers for all candidates."""
    table, random = make_table(60), np.random.default_rng(3)
    for column in ("inflight", "waiting_prefill_s", "inflight_uncached_tokens", "inflight_tokens"):
        getattr(table, column)[:] = random.integers(0, 40, 60)
    table.decoding[:] = np.floor(table.inflight * random.random(60))
    index = EventPrefixIndex(60)
    index.stored(7, (1, 2))
    index.stored(50, (1,))
    view = FleetView(3.0, table, index, random.random(60) * 0.1)
    request = make_request(slo=slo, block_hashes=(1, 2, 3))
    candidates = np.sort(random.permutation(60)[:50])
    kept: list[list[float]] = []

    class Noted(PriorPredictor):
        def predict(self, features: np.ndarray) -> Prediction:
            kept.append(features[:, INDEX["inflight_tokens"]].tolist())
            return super().predict(features)

    table.inflight_tokens[:] = 1000.0 + random.permutation(60)  # each row has its own
    policy = TokenPilot(TokenPilotSettings(forest_candidates=6), PolicyContext(table, 0, Noted()))
    chosen = policy.choose(request, candidates, view)
    features = policy._features.build(
        request, candidates, view.hit_tokens_at(request, candidates), view, policy.predictor.codes
    )
    scores = plain_parts(request, features, PriorPredictor().predict(features), view.rtt_s[candidates])[SCORE]
    best = set(candidates[np.argsort(-scores)[:6]].tolist()) | ({7, 50} & set(candidates.tolist()))
    assert set(kept[-1]) >= {table.inflight_tokens[row] for row in best}
    assert len(kept[-1]) <= 8
    assert chosen in candidates


def test_a_fleet_of_no_more_than_are_kept_is_scored_whole(
    make_table: MakeTable, make_request: Callable[..., RouteRequest]
) -> None:
    """``choose`` on few candidates is the best of ``explain``, which scores all of them."""
    table, random = make_table(20), np.random.default_rng(5)
    table.inflight[:] = table.decoding[:] = random.permutation(20) * 5
    view = FleetView(0.0, table, EventPrefixIndex(20), random.random(20) * 0.05)
    policy = TokenPilot(DEFAULTS, PolicyContext(table, 0))
    for number in range(10):
        rows = np.sort(random.permutation(20)[: 2 + number])
        request = make_request(number, input_tokens=100 * (number + 1), slo=SLOS[number % len(SLOS)])
        told = policy.explain(request, rows, view)
        assert policy.choose(request, rows, view) == next(one.endpoint for one in told if one.chosen)
