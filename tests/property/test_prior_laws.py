"""Laws of the closed-form prior: finite, positive, ordered, and rising with work and load."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data.catalog.types import ServiceTimes
from models.base import CategoryCodes
from models.features import INDEX, NAMES, RISING, EndpointKind, feature_matrix, hardware_rows
from models.physics import PriorPredictor, PriorSettings, prior_times
from models.signals import Signals

CODES = CategoryCodes()
COUNT = st.floats(0, 300)
TOKENS = st.floats(0, 500_000)
COEFFICIENT = st.floats(1e-9, 1e-2)


@st.composite
def rows(draw: st.DrawFn) -> np.ndarray:
    """One plausible feature row."""
    small = st.floats(0, 1e-7)
    times = ServiceTimes(
        p0=draw(st.floats(0.001, 0.1)),
        p1=draw(st.floats(1e-6, 1e-3)),
        p2=draw(small),
        d0=draw(st.floats(0.001, 0.1)),
        d1=draw(st.floats(0, 1e-3)),
        d2=draw(small),
        host_overhead=draw(st.floats(0, 0.02)),
        d_sat=draw(st.floats(0, 0.05)),
        sat_batch=draw(st.floats(1, 200)),
    )
    capacity = draw(st.floats(10_000, 2e6))
    kind = EndpointKind("g", 1, "m", draw(st.sampled_from([512.0, 2048.0, 8192.0])), capacity, times)
    kv_use = draw(st.floats(0, 1))
    tokens = draw(TOKENS)
    one = np.ones(1)
    signals = Signals(
        queue_depth=one * draw(COUNT),
        waiting_prefill_tokens=one * tokens,
        waiting_prefill_s=one * (tokens * times.p1),
        prefill_elapsed_s=one * draw(st.floats(0, 20)),
        running=one * draw(COUNT),
        inflight_tokens=one * draw(TOKENS),
        kv_use=one * kv_use,
        kv_tokens=one * kv_use * capacity,
        metrics_age_s=one * draw(st.floats(0, 60)),
        prefill_load=one * draw(st.floats(0, 2)),
    )
    prompt = draw(st.floats(1, 200_000))
    hit = prompt * draw(st.floats(0, 1))
    return feature_matrix(prompt, one * hit, 512.0, signals, hardware_rows([kind], CODES))


@given(rows(), st.sampled_from(RISING), st.floats(0, 1e5))
@settings(max_examples=300, deadline=None)
def test_f080_prior_rises_with_work_and_load(row: np.ndarray, name: str, more: float) -> None:
    grown = row.copy()
    more = min(more / 1e5, 1.0) if name == "kv_use" else more
    grown[0, INDEX[name]] += more
    if name == "input_tokens":
        grown[0, INDEX["hit_tokens"]] += more
    predictor = PriorPredictor(quantiles=(0.5, 0.9, 0.99))
    before, after = predictor.predict(row), predictor.predict(grown)
    assert (after.ttft_s >= before.ttft_s * (1 - 1e-12)).all()
    assert (after.tpot_s >= before.tpot_s * (1 - 1e-12)).all()


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=len(NAMES), max_size=len(NAMES)))
@settings(max_examples=200, deadline=None)
def test_f082_any_row_gives_finite_positive_ordered_times(values: list[float]) -> None:
    row = np.array([values])
    prediction = PriorPredictor(quantiles=(0.1, 0.5, 0.9)).predict(row)
    for times in (prediction.ttft_s, prediction.tpot_s):
        assert np.isfinite(times).all()
        assert (times > 0).all()
        assert (np.diff(times, axis=1) >= 0).all()
    assert prediction.extrapolated is not None


@given(rows(), st.floats(0, 60))
@settings(max_examples=100, deadline=None)
def test_f001_old_metrics_widen_but_do_not_shift(row: np.ndarray, age: float) -> None:
    young, old = row.copy(), row.copy()
    young[0, INDEX["metrics_age_s"]], old[0, INDEX["metrics_age_s"]] = 0.0, age
    a, b = (prior_times(x, PriorSettings()) for x in (young, old))
    assert a.ttft_s == b.ttft_s
    assert a.tpot_s == b.tpot_s
    assert b.ttft_spread >= a.ttft_spread


@given(rows())
@settings(max_examples=100, deadline=None)
def test_an_unknown_prefill_load_is_read_as_none_and_is_no_fault(row: np.ndarray) -> None:
    unknown, none = row.copy(), row.copy()
    unknown[0, INDEX["prefill_load"]], none[0, INDEX["prefill_load"]] = np.nan, 0.0
    a, b = (prior_times(x, PriorSettings()) for x in (unknown, none))
    assert a.tpot_s == b.tpot_s
    assert not a.suspect.any()
