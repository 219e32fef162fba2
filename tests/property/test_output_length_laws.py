"""Laws of output-length forecasts: bounds, order, bounded memory, tenants that do not touch each other."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.length_replay import LengthRow
from models.output_length import LengthQuery, LengthSettings, OutputLengthPredictor, StreamingLengths
from models.output_length_boost import BoostedLengths, LengthBoostSettings, fit_lengths

QUERY = st.builds(
    LengthQuery,
    workload_class=st.sampled_from(["chat", "code", ""]),
    tenant=st.sampled_from(["a", "b", "c", ""]),
    model=st.sampled_from(["m@1", "n@1"]),
    input_tokens=st.integers(1, 2_000_000),
    output_budget=st.integers(1, 2_000_000),
    session_id=st.sampled_from(["", "s", "t"]),
    turn=st.integers(0, 50),
    now_s=st.floats(0, 1e6),
)
SEEN = st.lists(st.tuples(QUERY, st.integers(1, 2_000_000)), max_size=40)
NOTHING_FADES = LengthSettings(
    wide_half_life=math.inf, tenant_half_life=math.inf, prompt_half_life=math.inf, session_half_life=math.inf
)


@cache
def fitted() -> BoostedLengths:
    random = np.random.default_rng(0)
    rows = [
        LengthRow(LengthQuery("chat", "a", "m@1", int(p), 4096, now_s=float(i)), max(int(p) // 9, 1), i + 1.0)
        for i, p in enumerate(random.integers(1, 20_000, 1200).tolist())
    ]
    return fit_lengths(rows, LengthBoostSettings(trees=10))


def check(predictor: OutputLengthPredictor, query: LengthQuery) -> None:
    forecast = predictor.predict(query)
    assert all(1.0 <= one <= query.output_budget for one in (*forecast.quantiles, forecast.mean))
    assert list(forecast.quantiles) == sorted(forecast.quantiles)
    assert len(forecast.quantiles) == len(forecast.levels) == len(predictor.levels)


@given(SEEN, QUERY)
@settings(max_examples=80, deadline=None)
def test_forecasts_are_in_order_and_within_one_and_the_budget(
    seen: list[tuple[LengthQuery, int]], query: LengthQuery
) -> None:
    for predictor in (StreamingLengths(), fitted()):
        for asked, tokens in seen:
            predictor.observe(asked, tokens)
        check(predictor, query)


@given(SEEN, QUERY, st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_without_fading_the_order_of_requests_does_not_matter(
    seen: list[tuple[LengthQuery, int]], query: LengthQuery, random: object
) -> None:
    one, other = StreamingLengths(NOTHING_FADES), StreamingLengths(NOTHING_FADES)
    for asked, tokens in seen:
        one.observe(asked, tokens)
    shuffled = list(seen)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for asked, tokens in shuffled:
        other.observe(asked, tokens)
    assert one.predict(query) == other.predict(query)


@given(SEEN, QUERY)
@settings(max_examples=60, deadline=None)
def test_tenants_are_only_names(seen: list[tuple[LengthQuery, int]], query: LengthQuery) -> None:
    names = {"a": "c", "b": "a", "c": "b", "": ""}
    one, other = StreamingLengths(), StreamingLengths()
    for asked, tokens in seen:
        one.observe(asked, tokens)
        other.observe(replace(asked, tenant=names[asked.tenant]), tokens)
    assert one.predict(query) == other.predict(replace(query, tenant=names[query.tenant]))


@given(SEEN, SEEN, QUERY)
@settings(max_examples=60, deadline=None)
def test_interleaving_independent_tenants_changes_neither(
    first: list[tuple[LengthQuery, int]], second: list[tuple[LengthQuery, int]], query: LengthQuery
) -> None:
    """What the groups of all tenants hold may fade in another order, so a tenant's own groups are compared."""
    mine = [(replace(asked, tenant="a"), tokens) for asked, tokens in first]
    others = [(replace(asked, tenant="b"), tokens) for asked, tokens in second]
    mixed = [pair for pairs in zip(mine, others, strict=False) for pair in pairs]
    shorter = min(len(mine), len(others))
    weights = []
    for order in (mine + others, others + mine, mixed + mine[shorter:] + others[shorter:]):
        predictor = StreamingLengths()
        for asked, tokens in order:
            predictor.observe(asked, tokens)
        weights.append([predictor.tenant_weight(replace(query, tenant=tenant)) for tenant in ("a", "b")])
    assert weights[0] == pytest.approx(weights[1])
    assert weights[0] == pytest.approx(weights[2])


@given(st.lists(st.tuples(QUERY, st.text(max_size=3), st.integers(1, 9999)), max_size=60))
@settings(max_examples=60, deadline=None)
def test_memory_is_bounded(seen: list[tuple[LengthQuery, str, int]]) -> None:
    predictor = StreamingLengths(LengthSettings(max_groups=16))
    for asked, tenant, tokens in seen:
        predictor.observe(replace(asked, tenant=tenant, session_id=tenant), tokens)
        assert len(predictor) <= 16
    check(predictor, LengthQuery("chat", "a", "m@1", 10, 100))
