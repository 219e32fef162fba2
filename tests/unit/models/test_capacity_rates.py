"""The closed-form capacity of a replica: monotone, within its limits, and near the simulator."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.catalog.load import load_catalog
from data.catalog.types import ServiceTimes
from data.errors import SettingError
from data.types import Slo
from models.capacity import (
    CapacitySettings,
    ClassShape,
    GroupRate,
    ReplicaLimits,
    group_rate,
    meets,
    operating_point,
    replica_rate,
    request_rate,
)

TIMES = ServiceTimes(p0=0.012, p1=1.0e-4, p2=1.7e-9, d0=0.017, d1=7e-5, d2=2.7e-8)
LIMITS = ReplicaLimits(300_000, 256, 8192)
SHAPE = ClassShape(2000.0, 250.0)
SLO = Slo(ttft_s=1.0, tpot_s=0.05)


def test_a_rate_keeps_every_target_and_a_little_more_does_not() -> None:
    rate = request_rate(TIMES, LIMITS, SHAPE, SLO, CapacitySettings())
    each = CapacitySettings(percentile=0.975)
    assert meets(operating_point(TIMES, LIMITS, SHAPE, 0.999 * rate, each), SLO)
    assert not meets(operating_point(TIMES, LIMITS, SHAPE, 1.01 * rate, each), SLO)


def test_impossible_targets_give_a_rate_of_zero() -> None:
    assert replica_rate(TIMES, LIMITS, SHAPE, Slo(ttft_s=0.01)) == 0.0
    assert replica_rate(TIMES, LIMITS, SHAPE, Slo(tpot_s=0.001)) == 0.0
    assert replica_rate(TIMES, ReplicaLimits(1000, 256, 8192), SHAPE, SLO) == 0.0
    assert group_rate(TIMES, LIMITS, SHAPE, Slo(ttft_s=0.01)) == GroupRate(0.0, 0.0)


@settings(max_examples=40, deadline=None)
@given(
    prompt=st.floats(100, 20_000),
    output=st.floats(10, 1000),
    hits=st.floats(0, 0.9),
    ttft=st.floats(0.3, 20),
    tpot=st.floats(0.03, 0.3),
    more=st.floats(1.05, 3.0),
)
def test_looser_limits_never_lower_the_rate(
    prompt: float, output: float, hits: float, ttft: float, tpot: float, more: float
) -> None:
    shape = ClassShape(prompt, output, hits, 0.5)
    slo = Slo(ttft_s=ttft, tpot_s=tpot)
    base = replica_rate(TIMES, LIMITS, shape, slo)
    roomy = replace(LIMITS, kv_capacity_tokens=LIMITS.kv_capacity_tokens * more)
    assert replica_rate(TIMES, LIMITS, shape, Slo(ttft_s=ttft * more, tpot_s=tpot)) >= base * (1 - 1e-9)
    assert replica_rate(TIMES, LIMITS, shape, Slo(ttft_s=ttft, tpot_s=tpot * more)) >= base * (1 - 1e-9)
    assert replica_rate(TIMES, roomy, shape, slo) >= base * (1 - 1e-9)
    assert replica_rate(TIMES, LIMITS, replace(shape, hit_share=min(0.95, hits + 0.05)), slo) >= base * (1 - 1e-9)
    assert replica_rate(TIMES, LIMITS, replace(shape, input_tokens=prompt * more), slo) <= base * (1 + 1e-9)
    tight = CapacitySettings(percentile=0.99)
    assert replica_rate(TIMES, LIMITS, shape, slo, tight) <= base * (1 + 1e-9)


def test_a_group_pools_its_queues() -> None:
    law = group_rate(TIMES, LIMITS, SHAPE, SLO)
    assert 0 <= law.loss < 1
    assert law.of(1) == pytest.approx(replica_rate(TIMES, LIMITS, SHAPE, SLO))
    per_replica = [law.of(n) / n for n in range(1, 20)]
    assert per_replica == sorted(per_replica)
    assert law.of(0.5) == pytest.approx(law.of(1) / 2)
    table = law.table(3, parts=4)
    assert len(table) == 13
    assert table[0] == 0.0
    assert (table[1:] >= table[:-1]).all()
    assert table[4] == pytest.approx(law.of(1))


def test_overload_is_infinite_not_negative() -> None:
    point = operating_point(TIMES, LIMITS, SHAPE, 1000.0, CapacitySettings())
    assert math.isinf(point.ttft_s)
    assert not point.fits


@pytest.mark.parametrize(
    ("field", "value"), [("percentile", 0.2), ("queue_factor", -1.0), ("overflow_chance", 0.0)]
)
def test_settings_out_of_range_are_named(field: str, value: float) -> None:
    with pytest.raises(SettingError, match=field):
        CapacitySettings(**{field: value})


def test_every_shipped_way_to_run_a_model_has_a_sane_rate() -> None:
    """Faster GPUs of one model and degree never carry less; nothing is negative or infinite."""
    catalog = load_catalog()
    for facts in catalog.replicas():
        limits = ReplicaLimits(facts.kv_capacity_tokens, 256, 8192)
        rate = replica_rate(facts.times, limits, SHAPE, Slo(ttft_s=2.0, tpot_s=0.08))
        assert 0 <= rate < 1e5
    pair = [catalog.facts("llama-3.1-8b", gpu, 1) for gpu in ("A100", "H100", "H200")]
    rates = [replica_rate(f.times, ReplicaLimits(f.kv_capacity_tokens, 256, 8192), SHAPE, SLO) for f in pair]
    assert rates == sorted(rates)


def test_a_heavy_tail_of_lengths_lowers_the_rate_but_not_to_nothing() -> None:
    """Prompts that miss on an idle replica too are no reason to ask for more replicas."""
    rates = [replica_rate(TIMES, LIMITS, replace(SHAPE, length_variation=v), SLO) for v in (0.0, 0.5, 1.0, 2.0)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] > 0.1 * rates[0]
