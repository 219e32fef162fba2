"""Laws of the feedback: bounds, bounded steps, decay, and no change under constant input within the band."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from router.slomax.feedback_laws import Admission, Capacity, Debt, Repeats, toward
from router.slomax.feedback_settings import FeedbackSettings

KNOBS = FeedbackSettings()
SHARES = st.floats(0.0, 1.0)
RATES = st.floats(0.0, 1e6)
DUST = 1e-9


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), st.floats(1e-3, 1e3), st.floats(0.0, 10.0))
def test_one_step_never_overshoots_and_stops_in_the_band(
    value: float, target: float, step: float, band: float
) -> None:
    moved = toward(value, target, step, band)
    assert abs(moved - value) <= step + DUST
    assert min(value, target) - DUST <= moved <= max(value, target) + DUST
    if abs(target - value) <= band:
        assert moved == value


@given(st.lists(st.tuples(SHARES, RATES), max_size=80))
def test_admission_stays_in_its_range_with_bounded_steps(windows: list[tuple[float, float]]) -> None:
    """F058: load is let in again by bounded steps and never below the floor."""
    law = Admission()
    for attainment, load in windows:
        before = law.share
        changed = law.step(attainment, load, KNOBS)
        assert KNOBS.admission_floor <= law.share <= 1.0
        assert law.share - before <= KNOBS.most_raise + DUST
        assert law.share >= before * (1.0 - KNOBS.most_cut) - DUST
        assert (changed == "changed") == (law.share != before)


@given(st.floats(KNOBS.attain_low, KNOBS.attain_high, exclude_max=True), st.floats(0.1, 1.0), RATES)
def test_nothing_changes_within_the_band(attainment: float, share: float, load: float) -> None:
    law = Admission(share=share)
    assert {law.step(attainment, load, KNOBS) for _ in range(20)} == {"unclear"}
    assert law.share == share


@settings(max_examples=60)
@given(st.floats(0.15, 0.95), st.floats(0.9, 1.0))
def test_changes_die_out_on_a_cliff(capacity: float, best: float) -> None:
    """A pool that meets nearly all targets below its capacity and few above: no step of the law hits the band."""
    law = Admission()
    shares = []
    for _ in range(600):
        attainment = max(best, KNOBS.attain_high) if law.share <= capacity else 0.3
        law.step(attainment, 100.0, KNOBS)
        shares.append(law.share)
    late = shares[-200:]
    changes = sum(a != b for a, b in pairwise(late))
    assert changes <= 2 * (200 // KNOBS.most_backoff + 2)
    assert max(late) <= capacity + KNOBS.least_raise + DUST


@given(st.lists(st.tuples(st.one_of(st.none(), st.floats(0.0, 5.0)), st.floats(0.1, 600.0)), max_size=60))
def test_the_capacity_factor_stays_in_its_range(samples: list[tuple[float | None, float]]) -> None:
    law = Capacity()
    for sample, dt_s in samples:
        before = law.factor
        law.step(sample, dt_s, KNOBS)
        assert KNOBS.capacity_low - DUST <= law.factor <= KNOBS.capacity_high + DUST
        assert abs(law.factor - before) <= KNOBS.capacity_step + DUST


@given(st.floats(0.6, 1.1))
def test_a_constant_measurement_settles_and_then_stands_still(sample: float) -> None:
    law = Capacity()
    for _ in range(400):
        law.step(sample, 10.0, KNOBS)
    settled = law.factor
    assert abs(settled - sample) <= KNOBS.capacity_band + 1e-6
    for _ in range(50):
        law.step(sample, 10.0, KNOBS)
    assert law.factor == settled


@given(st.floats(0.6, 1.1))
def test_a_factor_without_evidence_goes_back_to_one(start: float) -> None:
    law = Capacity(start, start)
    for _ in range(2000):
        law.step(None, 10.0, KNOBS)
    assert abs(law.factor - 1.0) <= KNOBS.capacity_band + 1e-6


@given(st.lists(st.tuples(st.floats(-3.0, 3.0), st.floats(0.1, 100.0)), max_size=60))
def test_debt_is_bounded_and_decays_to_nothing(steps: list[tuple[float, float]]) -> None:
    law = Debt()
    for share, dt_s in steps:
        before = law.seconds
        law.step(share, dt_s, KNOBS)
        assert 0.0 <= law.seconds <= KNOBS.debt_full_s
        assert 1.0 <= law.factor(KNOBS) <= 1.0 + KNOBS.debt_gain
        if share >= 1.0:
            assert law.seconds <= before
    for _ in range(1000):
        law.step(1.0, 10.0, KNOBS)
    assert law.seconds < 1e-6


@given(st.lists(st.tuples(st.floats(0.0, 5.0), st.one_of(st.none(), SHARES)), max_size=60))
def test_the_share_of_repeats_is_bounded(windows: list[tuple[float, float | None]]) -> None:
    law = Repeats()
    for ratio, attainment in windows:
        before = law.share
        law.step(ratio, attainment, KNOBS)
        assert 0.0 < law.share <= 1.0
        assert abs(law.share - before) <= KNOBS.repeat_step + DUST


@given(st.floats(0.3, 5.0))
def test_a_flood_of_repeats_is_released_only_when_it_is_over(ratio: float) -> None:
    """F058: targets that are met again while the flood lasts do not bring it back."""
    law = Repeats()
    for _ in range(10):
        law.step(ratio, 0.2, KNOBS)
    limited = law.share
    assert abs(limited * ratio - KNOBS.repeat_budget) < 1e-6
    for _ in range(20):
        law.step(ratio, 1.0, KNOBS)
    assert law.share == limited
    for _ in range(10):
        law.step(0.0, 1.0, KNOBS)
    assert law.share == 1.0
