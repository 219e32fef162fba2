"""Output-length predictors: the fading histogram, the chain of groups, the boosted one, the replay."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from data.errors import LogError, ModelError, SettingError
from data.types import Status
from models.length_histogram import BINS, MOST_TOKENS, LengthHistogram, bin_of, mean, quantiles
from models.length_replay import LengthRow, replay, rows_from_log
from models.output_length import LengthQuery, LengthSettings, OutputLengthPredictor, StreamingLengths
from models.output_length_boost import BoostedLengths, LengthBoostSettings, fit_lengths

LEVELS = np.array([0.1, 0.5, 0.9])
ASK = LengthQuery("chat", "a", "m@1", 1000, 4096)


def workload(count: int, seed: int, start: int = 0) -> list[LengthRow]:
    """Tenant ``short`` answers around 50 tokens, ``long`` around 800, both the longer the longer the prompt."""
    random = np.random.default_rng(seed)
    found = []
    for number in range(start, start + count):
        tenant = ("short", "long")[random.integers(2)]
        prompt = int(random.lognormal(7.0, 0.8)) + 1
        typical = (50 if tenant == "short" else 800) * (prompt / 1000) ** 0.3
        tokens = max(int(typical * random.lognormal(0, 0.3)), 1)
        query = LengthQuery("chat", tenant, "m@1", prompt, 4096, now_s=float(number))
        found.append(LengthRow(query, min(tokens, 4096), number + 0.02 * tokens))
    return found


def loss(predictor: OutputLengthPredictor, rows: list[LengthRow]) -> float:
    total = []
    for row in replay(rows, predictor.observe):
        error = row.output_tokens - np.array(predictor.predict(row.query).quantiles)
        total.append(np.where(error > 0, LEVELS * error, (LEVELS - 1) * error).mean())
    return float(np.mean(total))


@pytest.fixture(scope="module")
def boosted() -> Callable[[], BoostedLengths]:
    """Makes equal predictors, since each goes on learning."""
    rows = workload(3000, 1)
    return lambda: fit_lengths(rows)


def test_bins_hold_every_length_once() -> None:
    places = [bin_of(tokens) for tokens in range(1, 3000)]
    assert places == sorted(places)
    assert set(places) == set(range(max(places) + 1))
    assert bin_of(MOST_TOKENS) == BINS - 1


def test_histogram_quantiles_are_those_of_the_sample() -> None:
    lengths = np.random.default_rng(0).lognormal(5, 1, 5000).astype(int) + 1
    histogram = LengthHistogram(math.inf)
    for tokens in lengths.tolist():
        histogram.add(bin_of(tokens))
    shares = histogram.mixed(np.full(BINS, 1 / BINS), 1e-9)
    np.testing.assert_allclose(quantiles(shares, LEVELS), np.quantile(lengths, LEVELS), rtol=0.03)
    assert mean(shares, math.inf) == pytest.approx(lengths.mean(), rel=0.03)
    assert shares.sum() == pytest.approx(1.0)


def test_histogram_forgets_by_half_lives_for_any_number_of_observations() -> None:
    histogram = LengthHistogram(2.0)
    for _ in range(5000):  # beyond the range of a double if nothing were rescaled
        histogram.add(3)
    histogram.add(9)
    histogram.add(9)
    shares = histogram.mixed(np.zeros(BINS), 0.0)
    assert shares[9] == pytest.approx(0.5)
    assert shares[3] == pytest.approx(0.5)


def test_an_untaught_predictor_answers_its_first_guess_within_the_budget() -> None:
    forecast = StreamingLengths().predict(ASK)
    assert forecast.quantiles[1] == pytest.approx(256, rel=0.1)
    assert StreamingLengths().predict(replace(ASK, output_budget=7)).quantiles[2] == 7.0


def test_a_tenant_leaves_its_class_as_its_requests_come() -> None:
    predictor = StreamingLengths()
    for _ in range(500):
        predictor.observe(replace(ASK, tenant="b"), 100)
    assert predictor.predict(ASK).quantiles[1] == pytest.approx(100, rel=0.08)
    for _ in range(100):
        predictor.observe(ASK, 2000)
    assert predictor.predict(ASK).quantiles[1] == pytest.approx(2000, rel=0.08)
    assert predictor.predict(replace(ASK, tenant="b")).quantiles[1] == pytest.approx(100, rel=0.08)


def test_change_is_followed() -> None:
    predictor = StreamingLengths(LengthSettings(tenant_half_life=50, prompt_half_life=50))
    for tokens in [100] * 1000 + [900] * 200:
        predictor.observe(ASK, tokens)
    assert predictor.predict(ASK).quantiles[1] == pytest.approx(900, rel=0.08)


def test_a_session_speaks_for_itself() -> None:
    predictor = StreamingLengths()
    for number in range(400):
        predictor.observe(replace(ASK, session_id=str(number % 50)), 100)
    for _ in range(30):
        predictor.observe(replace(ASK, session_id="special"), 3000)
    assert predictor.predict(replace(ASK, session_id="special")).quantiles[1] > 1000
    assert predictor.predict(replace(ASK, session_id="7")).quantiles[1] < 200


def test_tenants_are_told_apart_better_than_by_class() -> None:
    rows = workload(2000, 3)
    blind = [replace(row, query=replace(row.query, tenant="")) for row in rows]
    assert loss(StreamingLengths(), rows) < 0.6 * loss(StreamingLengths(), blind)


def test_boosted_is_better_still_and_covers_its_levels(boosted: Callable[[], BoostedLengths]) -> None:
    later = workload(1500, 2, start=3000)
    assert loss(boosted(), later) < loss(StreamingLengths(), later)
    predictor = boosted()
    covered = [
        row.output_tokens <= np.array(predictor.predict(row.query).quantiles)
        for row in replay(later, predictor.observe)
    ]
    np.testing.assert_allclose(np.mean(covered, axis=0), LEVELS, atol=0.06)


def test_the_same_rows_give_the_same_forecasts(boosted: Callable[[], BoostedLengths]) -> None:
    assert boosted().predict(ASK) == boosted().predict(ASK)


def test_predicting_changes_nothing(boosted: Callable[[], BoostedLengths]) -> None:
    for predictor in (StreamingLengths(), boosted()):
        before = predictor.predict(ASK)
        predictor.predict(replace(ASK, tenant="new", session_id="s"))
        assert predictor.predict(ASK) == before


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(ModelError, match="at least 200"):
        fit_lengths(workload(300, 1))


def test_memory_is_bounded_and_what_was_used_last_stays() -> None:
    predictor = StreamingLengths(LengthSettings(max_groups=16))
    for number in range(200):
        predictor.observe(replace(ASK, tenant=f"t{number}", session_id=f"s{number}"), 50)
    assert len(predictor) == 16
    assert predictor.forgotten > 0
    assert predictor.tenant_weight(replace(ASK, tenant="t199")) == 1.0
    assert predictor.tenant_weight(replace(ASK, tenant="t0")) == 0.0


def test_replay_teaches_only_what_has_ended() -> None:
    rows = [LengthRow(replace(ASK, now_s=float(at)), at + 1, end) for at, end in ((0, 5.0), (1, 1.5), (2, 9.0))]
    learned: list[int] = []
    known = [list(learned) for _ in replay(rows, lambda _, tokens: learned.append(tokens))]
    assert known == [[], [], [2]]
    assert learned == [2, 1, 3]


def test_rows_from_a_log() -> None:
    row = {
        "decided_s": 5.0,
        "finished_s": 9.0,
        "status": int(Status.COMPLETED),
        "input_tokens": 10,
        "output_budget": 99,
        "output_tokens": 7,
        "workload_class": "chat",
        "tenant": None,
        "model": "m@1",
    }
    other = row | {"decided_s": 1.0, "status": int(Status.CANCELLED)}
    rows, dropped = rows_from_log(pa.Table.from_pylist([row, other, row | {"decided_s": 2.0, "output_tokens": 0}]))
    assert rows == [LengthRow(LengthQuery("chat", "", "m@1", 10, 99, now_s=5.0), 7, 9.0)]
    assert dropped == {"not_completed": 1, "no_length": 1}
    with pytest.raises(LogError, match="tenant"):
        rows_from_log(pa.Table.from_pylist([row]).drop_columns(["tenant"]))


@pytest.mark.parametrize(
    "bad",
    [
        {"levels": (0.5, 0.1)},
        {"levels": (0.0, 0.5)},
        {"tenant_half_life": 0.0},
        {"prompt_strength": -1.0},
        {"prompt_edges": (10, 5)},
        {"prompts_per_octave": 0.5},
        {"max_groups": 1},
        {"first_guess_tokens": 0.0},
    ],
)
def test_settings_are_checked(bad: dict[str, float]) -> None:
    with pytest.raises(SettingError, match=next(iter(bad))):
        LengthSettings(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bad", [{"trees": 0}, {"warm_share": 0.6}, {"calibrate_share": 0.0}, {"learning_rate": 2.0}]
)
def test_boost_settings_are_checked(bad: dict[str, float]) -> None:
    with pytest.raises(SettingError, match=next(iter(bad))):
        LengthBoostSettings(**bad)  # type: ignore[arg-type]
