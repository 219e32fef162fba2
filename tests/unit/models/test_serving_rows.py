"""The compiled pass over rows against the equations written out in plain Python, row by row."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from statistics import NormalDist

import numpy as np
import pytest

from models.calibration import load_band
from models.card import TARGETS
from models.features import INDEX, LEARNED, RISING
from models.physics import PriorSettings, prior_times
from models.serving_rows import EXTRAPOLATION_SPREAD, sort_rows
from models.training import Trained

SETTINGS = PriorSettings()


def odd_rows(model: Trained) -> np.ndarray:
    """Rows of the newest window, some broken, unknown, stale or far outside what was trained on."""
    rows = np.tile(model.test.features[:200], (2, 1))
    random = np.random.default_rng(0)
    for name, value in (
        ("queue_depth", np.nan), ("running", -3.0), ("kv_tokens", np.inf), ("gpu_type", -1.0), ("gpu_type", 7.0),
        ("model", 9.0), ("role", 2.0), ("input_tokens", 1e7), ("metrics_age_s", 30.0), ("kv_use", -0.1),
        ("d_sat", 0.004), ("inflight_tokens", np.nan), ("waiting_prefill_tokens", 0.0),
    ):  # fmt: skip
        rows[random.integers(200, len(rows), 25), INDEX[name]] = value
    rows[:, INDEX["sat_batch"]] = 16.0
    return rows


def plain_prior(row: dict[str, float]) -> tuple[float, float, float, float, bool]:
    """Equations (1) to (7) of ``models.physics`` for one row: times, spreads, suspect."""
    skipped = {*LEARNED, "metrics_age_s", "hit_tokens"} - {
        "uncached_tokens", "queue_depth", "waiting_prefill_tokens", "waiting_prefill_s", "prefill_elapsed_s",
        "running", "kv_use", "kv_tokens", "batch_token_budget", "metrics_age_s", "hit_tokens",
    }  # fmt: skip
    read = {name: value for name, value in row.items() if name not in skipped}
    suspect = any(not (math.isfinite(value) and value >= 0) for value in read.values())
    if suspect:
        read = {name: min(max(0.0 if value != value else value, 0.0), 1e12) for name, value in read.items()}
    u, h, r, q = (read[name] for name in ("uncached_tokens", "hit_tokens", "running", "queue_depth"))
    waiting, s = read["waiting_prefill_tokens"], read["waiting_prefill_s"]
    budget, capacity, host = (read[n] for n in ("batch_token_budget", "kv_capacity_tokens", "host_overhead"))
    k = max(read["kv_tokens"], read["kv_use"] * capacity)

    def weights(batch: float) -> float:
        return read["d0"] + read["d_sat"] * (1 - math.exp(-batch / max(read["sat_batch"], 1e-9)))

    loose = read["d1"] * r + read["d2"] * k + host
    fix = max(read["p0"], weights(r)) + loose
    step = max(budget - r, budget / 4, 1.0)
    ahead = s + fix * waiting / step
    left = max(ahead - read["prefill_elapsed_s"], SETTINGS.head_floor * ahead)
    occupied = k + waiting + u
    n = SETTINGS.decode_tokens
    delay = left + n * (weights(r) + loose) * max(occupied - capacity, 0.0) / max(capacity, 1.0)
    own = read["p1"] * u + read["p2"] * u * (h + u / 2)
    ttft = delay + own + fix * max(1.0, u / step) + 0.5 * min(1.0, r + q) * (weights(r) + loose)
    context = min(occupied + h, max(capacity, u + h))
    decode = weights(r + q + 1) + read["d1"] * (r + q + 1) + read["d2"] * context + host
    load = row["prefill_load"]
    share = min(max(load, 0.0), 1.0) if load == load else 0.0
    tpot = min(max(decode / (1 - min(share, SETTINGS.most_prefill)), 1e-5), 1e5)
    expected = row["expected_output_tokens"]
    tokens = expected if expected >= 1 else n
    noise = min(SETTINGS.interruptions * share * read["p1"] * (u + h) / (tokens * tpot), 0.5)
    busy = SETTINGS.spread_least + SETTINGS.spread_load / 2 * (q + s) / (q + s + 2)
    stale = SETTINGS.spread_age * max(read["metrics_age_s"] - 1, 0) / (max(read["metrics_age_s"] - 1, 0) + 2)
    return (
        min(max(ttft, 1e-5), 1e5),
        tpot,
        SETTINGS.spread_least + SETTINGS.spread_load * delay / (delay + 0.5) + stale,
        math.sqrt(busy * busy + noise) + stale,
        suspect,
    )


def test_the_prior_is_its_equations(toy_model: Trained) -> None:
    rows = odd_rows(toy_model)
    got = prior_times(rows, SETTINGS)
    want = np.array([plain_prior(dict(zip(INDEX, row, strict=True))) for row in rows.tolist()])
    columns = (got.ttft_s, got.tpot_s, got.ttft_spread, got.tpot_spread)
    for column, values in enumerate(columns):
        np.testing.assert_allclose(values, want[:, column], rtol=1e-9)
    assert got.suspect.tolist() == want[:, 4].astype(bool).tolist()
    assert 0 < got.suspect.sum() < len(rows)


def test_the_answer_is_prior_forest_calibration_and_guards(toy_model: Trained) -> None:
    """Each row by hand, from the model card's own numbers."""
    rows, predictor, card = odd_rows(toy_model), toy_model.predictor, toy_model.card
    raw = predictor.raw_quantiles(rows)
    sums = toy_model.forest.predict(rows)
    times = prior_times(rows, PriorSettings(**card.prior))
    bands = load_band(np.where(times.suspect, 0.0, rows[:, INDEX["queue_depth"]]))
    levels = len(card.quantiles)
    for number, row in enumerate(rows):
        gpu, model = row[INDEX["gpu_type"]], row[INDEX["model"]]
        known = gpu in range(len(card.gpu_types)) and model in range(len(card.models))
        known = known and row[INDEX["role"]] in card.roles
        wide, outside = bool(times.suspect[number]), bool(times.suspect[number]) or not known
        for name, low, high in zip(LEARNED, card.low, card.high, strict=True):
            if name in ("gpu_type", "model", "role"):
                continue
            value = row[INDEX[name]]
            wide |= value > high or (value < low and name not in RISING)
            outside |= value > high or value < low
        age = 0.0 if times.suspect[number] else row[INDEX["metrics_age_s"]]
        stale = card.prior["spread_age"] * max(age - 1, 0) / (max(age - 1, 0) + 2)
        assert bool(raw.extrapolated[number]) == outside
        for place, target in enumerate(TARGETS):
            median = getattr(times, target)[number]
            spread = (times.ttft_spread, times.tpot_spread)[place][number]
            for level in range(levels):
                z = NormalDist().inv_cdf(card.quantiles[level])
                first = place * (levels + 1)
                ratio = card.base[target][level] + sums[first, number] + sums[first + 1 + level, number]
                ratio = min(max(ratio, card.clamp[target][0]), card.clamp[target][1])
                ratio += (stale + EXTRAPOLATION_SPREAD * wide) * max(z, 0.0)
                if known:
                    ratio += card.offsets[target][int(gpu)][int(bands[number])][level]
                else:
                    ratio = z * spread
                want = min(max(median * math.exp(ratio), 1e-5), 1e5)
                assert getattr(raw, target)[number, level] == pytest.approx(want, rel=1e-9)


def test_one_call_answers_what_the_parts_answer(toy_model: Trained) -> None:
    """To the last bit, for rows of any kind and for rows that do not lie side by side in memory."""
    rows, predictor = odd_rows(toy_model), toy_model.predictor
    for asked in (rows, rows[:1], rows[:0], rows[::2], np.asfortranarray(rows)):
        raw, got = predictor.raw_quantiles(asked), predictor.predict(asked)
        np.testing.assert_array_equal(got.ttft_s, np.sort(raw.ttft_s, axis=1))
        np.testing.assert_array_equal(got.tpot_s, np.sort(raw.tpot_s, axis=1))
        np.testing.assert_array_equal(got.extrapolated, raw.extrapolated)


def test_rows_are_sorted_in_place() -> None:
    random = np.random.default_rng(0)
    for levels in (1, 2, 3, 7):
        rows = random.random((50, levels))
        want = np.sort(rows, axis=1)
        sort_rows(rows)
        np.testing.assert_array_equal(rows, want)


def test_f073_many_threads_get_the_answers_of_one(toy_model: Trained) -> None:
    rows = np.ascontiguousarray(toy_model.test.features[:64])
    alone = toy_model.predictor.predict(rows)
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda _: toy_model.predictor.predict(rows), range(400)))
    for answer in answers:
        np.testing.assert_array_equal(answer.ttft_s, alone.ttft_s)
        np.testing.assert_array_equal(answer.tpot_s, alone.tpot_s)
