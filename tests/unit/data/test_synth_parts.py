"""The parts of synthetic traces: quantiles, arrivals, block ids, settings and their ranges."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from data.errors import SettingError
from data.synth.arrivals import Diurnal, Gaps, HotSpell, Levels, Rate, build_rate
from data.synth.assign import Assignment, zipf_shares
from data.synth.blocks import Segments, block_ids, concat, mix64, spans
from data.synth.profile import Edits, SessionKind, SharedPrefix, TraceProfile
from data.synth.profiles import CONVERSATION
from data.synth.quantiles import ALWAYS_0, ALWAYS_1, Quantiles

TABLE = Quantiles.of((0, 0.5, 0.9, 1), (3, 100, 5000, 20_000))


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_quantiles_are_met_at_their_points_and_by_samples() -> None:
    assert TABLE.at(np.array([0, 0.5, 0.9, 1.0])) == pytest.approx([3, 100, 5000, 20_000])
    drawn = TABLE.sample(rng(), 200_000)
    assert np.quantile(drawn, [0.5, 0.9]) == pytest.approx([100, 5000], rel=0.03)
    assert drawn.mean() == pytest.approx(TABLE.mean(), rel=0.02)


def test_between_points_the_logarithm_is_linear() -> None:
    assert TABLE.at(np.array([0.25]))[0] + 1 == pytest.approx(np.sqrt(4 * 101))


@pytest.mark.parametrize("cv", [0.5, 1.0, 4.0])
def test_gamma_gaps_have_mean_one_and_their_cv(cv: float) -> None:
    gaps = Gaps(cv=cv).draw(rng(), 400_000)
    assert gaps.mean() == pytest.approx(1.0, rel=0.03)
    assert gaps.std() == pytest.approx(cv, rel=0.03)


def test_measured_gaps_keep_their_shape_at_mean_one() -> None:
    gaps = Gaps(shape=TABLE).draw(rng(), 300_000)
    assert gaps.mean() == pytest.approx(1.0, rel=0.02)
    assert np.quantile(gaps, 0.9) / np.median(gaps) == pytest.approx(50, rel=0.05)


def counts(rate: Rate, width_s: float, duration_s: float, gaps: Gaps | None = None) -> np.ndarray:
    starts = np.concatenate(list(rate.starts(gaps or Gaps(), rng(7), 1000)))
    starts = starts[np.isfinite(starts)]
    assert np.all(np.diff(starts) >= 0)
    assert starts[0] >= rate.edges_s[0]
    assert starts[-1] < duration_s
    return np.bincount((starts // width_s).astype(int), minlength=int(duration_s / width_s))


def test_poisson_starts_have_the_rate_and_its_variance() -> None:
    per_minute = counts(build_rate(5.0, 0.0, 36_000.0, rng=rng()), 60.0, 36_000.0)
    assert per_minute.mean() == pytest.approx(300, rel=0.02)
    assert per_minute.var() / per_minute.mean() == pytest.approx(1.0, rel=0.2)


def test_random_levels_make_counts_vary_more_than_poisson() -> None:
    rate = build_rate(5.0, 0.0, 36_000.0, levels=Levels((0.2, 1.8), 300.0), rng=rng())
    per_minute = counts(rate, 60.0, 36_000.0)
    assert per_minute.var() / per_minute.mean() > 20
    assert set(np.round(rate.rate_per_s, 9)) == {1.0, 9.0}


def test_a_longer_path_of_levels_begins_with_the_shorter() -> None:
    levels = Levels((0.5, 1.0, 1.5), 100.0)
    short, short_levels = levels.path(rng(3), 0.0, 1000.0)
    long, long_levels = levels.path(rng(3), 0.0, 5000.0)
    assert np.array_equal(long[: len(short)], short)
    assert np.array_equal(long_levels[: len(short)], short_levels)


@pytest.mark.parametrize("peak", [1.0, 1.9, 3.3, 9.0])
def test_daily_curve_has_mean_one_and_its_peak_at_its_hour(peak: float) -> None:
    curve = Diurnal(peak_over_mean=peak, peak_at_s=40_000.0)
    time_s = np.arange(0.0, 86_400.0, 10.0)
    assert curve.at(time_s).mean() == pytest.approx(1.0, abs=1e-6)
    assert curve.at(time_s).max() == pytest.approx(peak, rel=1e-6)
    assert curve.at(np.array([40_000.0]))[0] == pytest.approx(peak, rel=1e-9)


def test_daily_curve_shapes_the_starts() -> None:
    per_hour = counts(build_rate(1.0, 0.0, 86_400.0, diurnal=Diurnal(3.0), rng=rng()), 3600.0, 86_400.0)
    assert per_hour.argmax() in (13, 14)
    assert per_hour.max() / per_hour.mean() == pytest.approx(3.0, rel=0.1)


def test_hot_spell_multiplies_the_rate_between_its_seconds_only() -> None:
    rate = build_rate(2.0, 0.0, 3000.0, hot=(HotSpell("B", 1000.0, 1600.0, 4.0),), rng=rng())
    assert list(rate.edges_s) == [0.0, 1000.0, 1600.0, 3000.0]
    assert list(rate.rate_per_s) == [2.0, 8.0, 2.0]


def test_zipf_shares_add_up_and_fall_by_their_law() -> None:
    shares = zipf_shares(4, 2.0)
    assert sum(shares) == pytest.approx(1.0)
    assert shares[0] / shares[3] == pytest.approx(16.0)
    assert zipf_shares(3, 0.0) == pytest.approx((1 / 3,) * 3)


def test_spans_and_mixing() -> None:
    assert spans(np.array([5, 0, 9]), np.array([2, 0, 3])).tolist() == [5, 6, 9, 10, 11]
    values = np.arange(10_000, dtype=np.uint64)
    assert len(np.unique(mix64(values))) == len(values)


def test_block_ids_of_shared_grown_and_branched_prompts() -> None:
    keys = np.array([7, 7, 7, 8], dtype=np.uint64)
    prompts = Segments(np.array([0, 1, 2, 4]), np.array([0, 0, 0, 2]), keys)
    offsets, ids = block_ids(prompts, np.array([1100, 2048, 2048]), 512)
    first, grown, branched = (ids[offsets[i] : offsets[i + 1]].tolist() for i in range(3))
    assert [len(first), len(grown), len(branched)] == [3, 4, 4]
    assert first[:2] == grown[:2] == branched[:2]
    assert first[2] != grown[2], "a partial block is another content than the full one"
    assert not set(branched[2:]) & set(grown)


def test_equal_partial_blocks_are_equal_and_a_longer_one_is_not() -> None:
    one = Segments(np.array([0, 1, 2, 3]), np.array([0, 0, 0]), np.array([7, 7, 7], dtype=np.uint64))
    _, ids = block_ids(one, np.array([100, 100, 101]), 512)
    assert ids[0] == ids[1] != ids[2]


def test_a_segment_beyond_the_end_of_a_short_prompt_is_left_out() -> None:
    prompts = Segments(np.array([0, 2]), np.array([0, 5]), np.array([7, 8], dtype=np.uint64))
    offsets, ids = block_ids(prompts, np.array([1024]), 512)
    assert offsets.tolist() == [0, 2]
    assert len(ids) == 2


def test_segments_are_joined_and_taken() -> None:
    a = Segments(np.array([0, 1, 3]), np.array([0, 0, 4]), np.array([1, 2, 3], dtype=np.uint64))
    both = concat([a, a]).take(np.array([3, 0]))
    assert both.offsets.tolist() == [0, 2, 3]
    assert both.key.tolist() == [2, 3, 1]


KIND = SessionKind(weight=1.0, first_input_tokens=TABLE, output_tokens=TABLE)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: Quantiles.of((0, 0.5), (1, 2)), "bad quantiles"),
        (lambda: Quantiles.of((0, 1), (2, 1)), "never fall"),
        (lambda: Quantiles.of((0, 1), (-1, 1)), "bad quantiles"),
        (lambda: Quantiles(()), "bad quantiles"),
        (lambda: Gaps(cv=0.0), "cv"),
        (lambda: Levels((1.0,), 5.0), "levels"),
        (lambda: Levels((0.0, 0.0), 5.0), "levels"),
        (lambda: Levels((1.0, 2.0), 0.0), "dwell_s"),
        (lambda: Diurnal(peak_over_mean=0.5), "peak_over_mean"),
        (lambda: Diurnal(period_s=0.0), "period_s"),
        (lambda: HotSpell("B", 5.0, 5.0, 2.0), "until_s"),
        (lambda: HotSpell("B", 0.0, 5.0, -1.0), "factor"),
        (lambda: Edits(1.5, ALWAYS_1, ALWAYS_0), "share"),
        (lambda: Edits(0.5, TABLE, ALWAYS_0), "keep"),
        (lambda: SessionKind(0.0, TABLE, TABLE), "weight"),
        (lambda: SessionKind(1.0, TABLE, TABLE, turns=ALWAYS_0), "turns"),
        (lambda: SessionKind(1.0, TABLE, TABLE, max_input_tokens=0), "max_input_tokens"),
        (lambda: SharedPrefix(-1), "shared prefix"),
        (lambda: TraceProfile("x", "", ()), "kinds"),
        (lambda: TraceProfile("x", "", (KIND,), block_tokens=8), "block_tokens"),
        (lambda: TraceProfile("x", "", (KIND,), service_s=(-1.0, 0.0)), "service_s"),
        (lambda: TraceProfile("x", "", (KIND,), output_budget=0), "output_budget"),
        (lambda: TraceProfile("x", "", (KIND,), warm_up_s=-1.0), "warm_up_s"),
        (lambda: Assignment(origins=()), "origins"),
        (lambda: Assignment(origins=(("A", 1.0), ("A", 1.0))), "origins"),
        (lambda: Assignment(origins=(("A", 0.0),)), "origins"),
        (lambda: Assignment(hot_spells=(HotSpell("B", 0.0, 1.0, 2.0),)), "unknown origin"),
        (lambda: zipf_shares(0), "Zipf"),
    ],
)
def test_every_range_is_checked_and_named(make: Callable[[], object], names: str) -> None:
    with pytest.raises(SettingError, match=names):
        make()


def test_profiles_are_values() -> None:
    assert hash(CONVERSATION) == hash(CONVERSATION)
    with pytest.raises(AttributeError):
        CONVERSATION.name = "x"  # type: ignore[misc]
