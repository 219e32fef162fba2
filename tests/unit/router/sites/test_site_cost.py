"""The terms of a site's cost, by hand."""

from __future__ import annotations

import math

import pytest

from data.types import Slo
from router.sites.cost import asked_of, parts_of, queue_s
from router.sites.settings import FleetMindSettings

SETTINGS = FleetMindSettings(harm_price=2.0, price_s=3.0)


def parts(option, request, hits=0.0, wait_s=None, slowness=1.0, age_s=0.0):
    wait = option.capacity.queue_s if wait_s is None else wait_s
    return parts_of(option, asked_of(request), hits, wait, slowness, age_s, SETTINGS)


def test_each_term_is_what_the_equations_say(make_option, make_request):
    option = make_option(
        "C", rtt_s=0.02, queue_s=0.5, prefill_s_per_token2=1e-8, busy=3.0,
        transfer_s_per_token=1e-6, price_per_gb=0.5, price_per_token=0.001,
    )  # fmt: skip
    found = parts(option, make_request(slo=Slo(), input_tokens=1000, expected_output_tokens=200.0), hits=400.0)
    prefill = 600 * (1e-4 + 1e-8 * (400 + 300))
    assert found.network_s == pytest.approx(0.02 + 0.001)
    assert found.queue_s == 0.5
    assert found.compute_s == pytest.approx(0.01 + prefill + 200 * 0.01)
    assert found.saved_s == pytest.approx(1000 * (1e-4 + 1e-8 * 500) - prefill)
    assert found.harm_s == pytest.approx(2.0 * prefill * 3.0)
    assert found.late_s == 0.0
    assert found.price_s == pytest.approx(3.0 * (0.5 * 4 * 1200 / 1e9 + 0.001 * 200))
    assert found.ttft_s == pytest.approx(0.021 + 0.5 + 0.01 + prefill)
    assert found.total_s == pytest.approx(0.021 + 0.5 + 0.01 + prefill + 2.0 + found.harm_s + found.price_s)


def test_lateness_costs_the_whole_allowed_time_at_most(make_option, make_request):
    request = make_request(slo=Slo(ttft_s=1.0, tpot_s=0.05), expected_output_tokens=100.0)
    allowed = 1.0 + 100 * 0.05
    good, late = parts(make_option(), request), parts(make_option(queue_s=20.0), request)
    assert good.late_s == pytest.approx(0.0, abs=1e-6)
    assert late.late_s == pytest.approx(allowed, rel=1e-6)
    middle = parts(make_option(queue_s=1.0 - 0.01 - 0.1), request)
    assert middle.meets == pytest.approx(0.5, abs=0.01)
    assert middle.late_s == pytest.approx(0.5 * allowed, rel=0.03)


def test_an_old_report_makes_uncertain_and_not_full(make_option, make_request):
    request = make_request(slo=Slo(ttft_s=1.0))
    idle, busy = make_option(queue_s=0.2), make_option(queue_s=3.0)
    fresh, old = parts(idle, request), parts(idle, request, age_s=60.0)
    assert fresh.meets > old.meets > 0.5, "old good news is less sure, but still good news"
    assert parts(busy, request).meets < parts(busy, request, age_s=60.0).meets < 0.5
    assert old.queue_s == fresh.queue_s


def test_slowness_scales_times_and_chance(make_option, make_request):
    request = make_request(slo=Slo(ttft_s=1.0))
    found = parts(make_option(queue_s=0.6), request, slowness=2.0)
    assert found.slow_s == pytest.approx(0.6 + 0.01 + 0.1 + 2.0)
    assert found.meets < 0.5 < parts(make_option(queue_s=0.6), request).meets


def test_the_wait_of_a_report_misses_own_work_and_has_run_on_since(make_option):
    remote = make_option(counts_own=False, queue_s=1.0)
    assert queue_s(remote, 0.0, 0.0) == 1.0
    assert queue_s(remote, 2.0, 0.0) == 1.0 + 2.0 / 4
    assert queue_s(remote, 2.0, 0.5) == 1.0
    assert queue_s(remote, 2.0, 60.0) == pytest.approx(0.15), "a floor: age proves nothing"
    assert queue_s(make_option(counts_own=True, queue_s=1.0), 2.0, 0.5) == 1.0


def test_a_site_without_a_link_is_never_cheap(make_option, make_request):
    assert math.isinf(parts(make_option(rtt_s=math.inf), make_request(slo=Slo())).total_s)
