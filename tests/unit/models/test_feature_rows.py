"""Signals and feature rows in compiled code against the same arithmetic array by array."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from models.feature_rows import put_rows, row_arguments
from models.features import NAMES, feature_matrix
from models.signals import (
    PREFILL_LOAD_HALF_LIFE_S,
    UNREPORTED_AGE_S,
    EndpointColumns,
    SignalSettings,
    fading,
    load_columns,
    observe,
)

COLUMNS = tuple(EndpointColumns.__annotations__)
REPORTED = ("reported_at_s", "running", "waiting", "kv_use", "prefill_since_s")
FIXED = NAMES.index("metrics_age_s") - NAMES.index("gpu_type")


def random_table(seed: int, n: int) -> SimpleNamespace:
    """Columns as a router may come to hold them: reports missing here and there, counts at 0."""
    random = np.random.default_rng(seed)
    scale = random.choice([1.0, 30.0, 2000.0], size=(len(COLUMNS), n))
    values = random.random((len(COLUMNS), n)) * scale * (random.random((len(COLUMNS), n)) < 0.8)
    table = SimpleNamespace(**dict(zip(COLUMNS, values, strict=True)))
    for name in REPORTED:
        getattr(table, name)[random.random(n) < 0.2] = np.nan
    table.kv_use = np.minimum(table.kv_use, 1.2)
    table.kv_capacity_tokens = random.integers(1, 100_000, n).astype(float)
    return table


def plain_signals(t: SimpleNamespace, now_s: float, settings: SignalSettings) -> list[np.ndarray]:
    """The definitions of ``models.signals`` on whole columns, in the order of ``Signals``."""
    age = np.where(np.isnan(t.reported_at_s), np.inf, np.maximum(now_s - t.reported_at_s, 0.0))
    age = np.minimum(age, UNREPORTED_AGE_S)
    weight = 0.5 ** (np.maximum(age - settings.fresh_s, 0.0) / settings.half_life_s)
    waiting, running = np.nan_to_num(t.waiting), np.nan_to_num(t.running)
    ours = np.maximum(t.inflight - t.sent_since_report, 0.0)
    foreign = np.maximum(waiting + running - ours, 0.0) * weight
    foreign_waiting = foreign * waiting / np.maximum(waiting + running, 1.0)
    foreign_tokens = foreign_waiting * settings.foreign_prompt_tokens
    per_token = t.waiting_prefill_s / np.maximum(t.inflight_uncached_tokens, 1.0)
    own = t.inflight_tokens / t.kv_capacity_tokens
    fresh = np.where(np.isnan(t.kv_use), own, t.kv_use) + t.sent_uncached_since_report / t.kv_capacity_tokens
    share = np.clip(weight * fresh + (1.0 - weight) * own, 0.0, 1.0)
    elapsed = np.maximum(np.nan_to_num(now_s - t.prefill_since_s), 0.0) * (t.inflight_uncached_tokens > 0)
    idle = np.maximum(now_s - t.recent_prefill_at_s, 0.0)
    rate = np.log(2.0) / PREFILL_LOAD_HALF_LIFE_S
    return [
        np.maximum(t.inflight - t.decoding, 0.0) + foreign_waiting,
        t.inflight_uncached_tokens + foreign_tokens,
        t.waiting_prefill_s + foreign_tokens * per_token,
        elapsed,
        t.decoding + foreign - foreign_waiting,
        t.inflight_tokens,
        share,
        share * t.kv_capacity_tokens,
        age,
        t.recent_prefill_s * 0.5 ** (idle / PREFILL_LOAD_HALF_LIFE_S) * rate,
    ]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 40), st.floats(0.0, 3000.0))
def test_signals_are_their_definitions(seed: int, n: int, now_s: float) -> None:
    table, chosen = random_table(seed, n), SignalSettings(0.7, 1.3, 900.0)
    rows = np.random.default_rng(seed).permutation(n)[: max(n // 2, 1)]
    seen = observe(table, rows, now_s, chosen)
    for name, values in zip(seen.__slots__, plain_signals(table, now_s, chosen), strict=True):
        got = getattr(seen, name)
        np.testing.assert_allclose(got, values[rows], rtol=1e-12, atol=1e-12, err_msg=name)
        assert np.isfinite(got).all()
        assert (got >= 0).all()


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 40), st.floats(0.0, 200.0))
def test_rows_are_those_of_the_feature_matrix(seed: int, n: int, now_s: float) -> None:
    """To the last bit: training builds its rows from the logged signals with the latter."""
    table, chosen, random = random_table(seed, n), SignalSettings(), np.random.default_rng(seed)
    rows = random.permutation(n)[: max(n // 2, 1)]
    hits, hardware = random.integers(0, 900, len(rows)).astype(float), random.random((n, FIXED))
    out = np.full((len(rows), len(NAMES)), np.nan)
    columns = load_columns(table)
    put_rows(*row_arguments((900.0, 300.0, 80.0), rows, hits, now_s, fading(chosen), columns, hardware, out))
    expected = feature_matrix(900.0, hits, 300.0, observe(table, rows, now_s, chosen), hardware[rows], None, 80.0)
    np.testing.assert_array_equal(out, expected)
