"""Whole runs on a small fleet: the path of a request, the network, clients, failures, life and the log."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from data.errors import SettingError, TraceError
from data.fleet.types import EngineSettings
from data.log.schema import DECISIONS, OUTCOMES
from data.types import RefusalReason, Request, Slo, Status
from models.signals import SignalSettings, observe
from planner.sim.changes import Drain, Start
from planner.sim.end_reasons import CLIENT_CANCELLED, CRASHED, NOT_CONNECTED, TIMED_OUT
from planner.sim.run import simulate
from planner.sim.settings import FailureEvent, SimSettings
from router.endpoints import EndpointTable
from router.types import RouteRequest

QUIET = SimSettings(step_noise=0.0)
Make = Callable[..., Any]


def conserved(ran: Any) -> None:
    total = ran.result.total
    ended = total.completed + total.failed + total.cancelled + total.rejected
    assert total.offered == ended + total.running


def test_one_request_from_arrival_to_end(world: Any, steady: Make) -> None:
    ran = world.run(steady(1, 1.0, input_tokens=100, output_tokens=3))
    transfer = 100 * 4 / (10e9 / 8)
    first = transfer + 0.002 + 0.0001 * 100 + 1e-9 * 100 * 50 + 0.001
    step = 0.01 + 0.0002 + 0.001
    end = first + 2 * step + 1e-7 * (100 + 101)
    total = ran.result.total
    assert total.ttft.mean == pytest.approx(first)
    assert total.e2e.mean == pytest.approx(end)
    assert total.tpot.mean == pytest.approx((end - first) / 2)
    assert ran.result.duration_s == pytest.approx(end)
    assert total.goodput_tokens_per_s == pytest.approx(3 / end)
    assert ran.result.gpu_hours == pytest.approx(2 * end / 3600)


def test_round_trip_and_transfer_are_paid_but_not_logged(make_world: Make, steady: Make) -> None:
    rows = steady(1, 1.0, input_tokens=1000, output_tokens=3)
    near, far = make_world().run(rows), make_world(rtt_s=0.2).run(rows)
    transfer = 1000 * 4 / (10e9 / 8)
    # A 10 Gbit/s link is crossed in both runs; the round trip only in the second.
    assert far.result.total.ttft.mean == pytest.approx(near.result.total.ttft.mean + 0.2)
    assert far.result.total.tpot.mean == pytest.approx(near.result.total.tpot.mean)
    assert far.sink.outcomes[0]["ttft_s"] == pytest.approx(near.sink.outcomes[0]["ttft_s"])
    assert far.sink.outcomes[0]["e2e_s"] == pytest.approx(near.sink.outcomes[0]["e2e_s"])
    assert near.result.total.ttft.mean == pytest.approx(near.sink.outcomes[0]["ttft_s"] + transfer)
    assert far.sink.decisions[0]["rtt_s"] == pytest.approx(0.2)


def test_the_router_never_sees_an_output_length(world: Any) -> None:
    assert "output_tokens" not in {f.name for f in fields(RouteRequest)}
    rows = [Request(i, i * 0.5, 100, 1 + 7 * i, 400, workload_class="chat") for i in range(30)]
    ran = world.run(rows)
    expected = [request.expected_output_tokens for _, request, _, _ in ran.policy.routed]
    assert expected[0] == 20.0
    # Learned from requests that ended before: the declared mean with the weight of 20 requests, then theirs.
    seen, total = 0, 20.0 * 20
    ended = sorted((o.finished_s, o.output_tokens) for o in ran.policy.outcomes)
    for (now, request, _, _), mean in zip(ran.policy.routed, expected, strict=True):
        while seen < len(ended) and ended[seen][0] <= now:
            total += ended[seen][1]
            seen += 1
        assert mean == pytest.approx(min(total / (20 + seen), request.output_budget))


def test_reports_are_late_by_period_and_delay(world: Any, steady: Make) -> None:
    settings = SimSettings(step_noise=0.0, scrape_period_s=1.0, scrape_delay_s=0.3)
    ran = world.run(steady(40, 0.2, output_tokens=200, output_budget=300), settings, sites=("B",))
    for (now, *_), view in zip(ran.policy.routed, ran.policy.views, strict=True):
        reported = view["reported_at_s"][0]
        newest = math.floor(round(now - 0.3, 9))
        if newest < 0:
            assert math.isnan(reported)
        else:
            assert reported == newest
    # The report is what was true at its sample: nothing can be running that was not sent by then.
    for (now, *_), view in zip(ran.policy.routed, ran.policy.views, strict=True):
        if now > 1.4:
            sent = sum(1 for at, *_ in ran.policy.routed if at <= view["reported_at_s"][0])
            assert 0 < view["running"][0] + view["waiting"][0] <= sent
            assert 0 < view["kv_use"][0] <= 1


def test_kv_use_between_events_is_interpolated(world: Any) -> None:
    settings = SimSettings(step_noise=0.0, scrape_period_s=0.1, scrape_delay_s=0.0)
    rows = [Request(0, 0.0, 160, 600, 700), *(Request(i, 1.0 + i * 0.5, 16, 1, 8) for i in range(1, 12))]
    ran = world.run(rows, settings, sites=("B",))
    uses = [view["kv_use"][0] for view in ran.policy.views[1:]]
    assert uses == sorted(uses)
    assert len(set(uses)) == len(uses)


def test_prefix_events_are_late(world: Any) -> None:
    hashes = tuple(range(4))
    rows = [Request(i, at, 2048, 1, 8, hashes, 512, workload_class="bulk") for i, at in enumerate((0.0, 1.0, 5.0))]
    ran = world.run(rows, SimSettings(step_noise=0.0, kv_event_lag_s=3.0), sites=("B",))
    assert ran.policy.hits == [0.0, 0.0, 2047.0]
    # The engine itself has the blocks at once.
    assert [row["cached_tokens"] for row in ran.sink.outcomes] == [0, 2047, 2047]
    assert ran.result.total.hit_rate == pytest.approx(2 * 2047 / (3 * 2048))


def test_evicted_prefixes_leave_the_index(world: Any) -> None:
    rows = [Request(i, float(i), 1024, 1, 8, (100 * i, 100 * i + 1), 512, workload_class="bulk") for i in range(6)]
    rows.append(Request(6, 20.0, 1024, 1, 8, (0, 1), 512, workload_class="bulk"))
    rows.append(Request(7, 30.0, 1024, 1, 8, (500, 501), 512, workload_class="bulk"))
    ran = world.run(rows, sites=("B",), kv_tokens=2600)
    assert ran.policy.hits[6] == 0.0
    assert ran.policy.hits[7] == 1023.0


def test_without_prefix_caching_there_are_no_hits(make_world: Make) -> None:
    world = make_world(engine=EngineSettings(1024, 8, 16, prefix_caching=False))
    rows = [Request(i, float(i), 512, 1, 8, (1,), 512) for i in range(3)]
    ran = world.run(rows, sites=("B",))
    assert ran.policy.hits == [0.0, 0.0, 0.0]
    assert ran.result.total.hit_rate == 0.0


def test_clients_time_out_without_a_first_token(make_world: Make, steady: Make) -> None:
    ran = make_world(timeout_s=0.5).run(
        steady(60, 0.01, input_tokens=1000, output_tokens=50), sites=("B",), kv_tokens=20_000
    )
    total = ran.result.total
    assert total.cancelled > 10
    assert total.completed > 0
    conserved(ran)
    for outcome in ran.policy.outcomes:
        if outcome.status is Status.CANCELLED:
            assert outcome.reason == TIMED_OUT
            assert outcome.e2e_s == pytest.approx(0.5)
            assert math.isnan(outcome.ttft_s)
    cancelled = [row for row in ran.sink.outcomes if row["status"] == Status.CANCELLED]
    assert all(row["ttft_s"] is None and row["e2e_s"] <= 0.5 for row in cancelled)
    assert ran.result.extra["wasted_tokens_cancelled"] > 0


def test_settings_override_the_time_out_of_the_class(make_world: Make, steady: Make) -> None:
    rows = steady(60, 0.01, input_tokens=1000, output_tokens=50)
    settings = SimSettings(step_noise=0.0, client_timeout_s=1000.0)
    assert make_world(timeout_s=0.5).run(rows, settings, sites=("B",)).result.total.cancelled == 0


def test_cancels_hit_the_same_requests_whatever_the_policy(world: Any, steady: Make) -> None:
    settings = SimSettings(step_noise=0.0, cancel_share=0.3, seed=4)
    rows = steady(200, 0.05, output_tokens=100, output_budget=100)
    one = world.run(rows, settings, sites=("B", "B"))
    two = world.run(rows, settings, sites=("B", "B", "C"))
    gone = [{o.request_id for o in ran.policy.outcomes if o.status is Status.CANCELLED} for ran in (one, two)]
    assert len(gone[0] & gone[1]) > 10
    assert len(gone[0] ^ gone[1]) < 0.6 * len(gone[0] | gone[1])
    assert all(o.reason == CLIENT_CANCELLED for o in one.policy.outcomes if o.status is Status.CANCELLED)
    conserved(one)


def test_a_crash_fails_what_runs_and_retries_pass_the_same_filters(world: Any, steady: Make) -> None:
    crash = FailureEvent(1.0, 0, "crash", 2.0)
    settings = SimSettings(step_noise=0.0, failures=(crash,), retries=3, retry_backoff_s=0.1)
    ran = world.run(steady(80, 0.05, output_tokens=100, output_budget=200), settings)
    conserved(ran)
    failed = [o for o in ran.policy.outcomes if o.status is Status.FAILED]
    assert {o.reason for o in failed} == {CRASHED, NOT_CONNECTED}
    assert all(o.endpoint == 0 for o in failed)
    assert ran.result.total.failed == 0
    assert ran.result.total.repeats == len(failed)
    assert 0 in ran.policy.resets
    # The first token of a retried request counts from its first arrival.
    retried = {o.request_id for o in failed}
    for outcome in ran.policy.outcomes:
        if outcome.request_id in retried and outcome.status is Status.COMPLETED:
            assert outcome.attempt >= 1
            assert outcome.ttft_s > 0.1
    # Between the notice of the crash and the end of the reload (2 s + 5 s) nothing is sent there.
    sent = [at for at, _, _, chosen in ran.policy.routed if chosen == 0]
    assert not [at for at in sent if 1.35 < at < 8.0]
    assert ran.result.extra["wasted_tokens_repeated"] > 0
    assert ran.result.extra["wasted_tokens_failed"] == 0


def test_a_crashed_endpoint_comes_back_empty(world: Any) -> None:
    rows = [Request(i, at, 1024, 1, 8, (1, 2), 512) for i, at in enumerate((0.0, 1.0, 30.0, 31.0))]
    settings = SimSettings(step_noise=0.0, failures=(FailureEvent(5.0, 0, "crash", 1.0),))
    ran = world.run(rows, settings, sites=("B",))
    assert ran.policy.hits == [0.0, 1023.0, 0.0, 1023.0]
    assert [row["cached_tokens"] for row in ran.sink.outcomes] == [0, 1023, 0, 1023]


def test_without_retries_a_crash_is_a_failure(world: Any, steady: Make) -> None:
    settings = SimSettings(step_noise=0.0, failures=(FailureEvent(1.0, 0, "crash", 2.0),))
    ran = world.run(steady(40, 0.05, output_tokens=100, output_budget=200), settings)
    assert ran.result.total.failed > 0
    conserved(ran)


def test_a_slow_endpoint_takes_longer_for_a_while(world: Any) -> None:
    rows = [Request(i, float(i), 100, 10, 20) for i in range(12)]
    settings = SimSettings(step_noise=0.0, failures=(FailureEvent(2.9, 0, "slow", 4.0, 3.0),))
    ran = world.run(rows, settings, sites=("B",))
    times = [o.e2e_s for o in ran.policy.outcomes]
    for i in range(12):
        factor = 3.0 if 3 <= i <= 6 else 1.0
        assert times[i] == pytest.approx(times[0] * factor, rel=0.02)


def test_a_hung_endpoint_accepts_and_makes_no_progress(make_world: Make) -> None:
    rows = [Request(i, float(i), 100, 10, 20) for i in range(8)]
    settings = SimSettings(step_noise=0.0, failures=(FailureEvent(1.5, 0, "hang", 3.0),))
    ran = make_world(timeout_s=1.0).run(rows, settings, sites=("B",))
    status = [o.status for o in sorted(ran.policy.outcomes, key=lambda o: o.request_id)]
    assert status == [Status.COMPLETED] * 2 + [Status.CANCELLED] * 2 + [Status.COMPLETED] * 4
    # It looks healthy and idle: the report says nothing.
    assert all(view["ready"][0] for view in ran.policy.views)
    conserved(ran)


def test_a_hang_without_end_leaves_requests_running(world: Any, steady: Make) -> None:
    settings = SimSettings(step_noise=0.0, failures=(FailureEvent(0.0, 0, "hang", math.inf),), time_limit_s=50.0)
    ran = world.run(steady(5, 1.0), settings, sites=("B",))
    assert ran.result.total.running == 5
    assert ran.result.duration_s == 50.0
    conserved(ran)


def test_time_limit_ends_the_run(world: Any, steady: Make) -> None:
    settings = SimSettings(step_noise=0.0, time_limit_s=2.0, timeline_s=0.5)
    ran = world.run(steady(100, 0.1, output_tokens=60, output_budget=60), settings)
    assert ran.result.duration_s == 2.0
    assert ran.result.total.offered == 21
    assert ran.result.total.running > 0
    assert len(ran.result.timeline.waiting) == 5
    conserved(ran)


def test_a_started_replica_serves_once_it_is_loaded(world: Any, steady: Make) -> None:
    ran = world.run(
        steady(100, 0.1, output_tokens=50, output_budget=50),
        starts=(Start(2.0, 1, 2.9),),
    )
    sent = [at for at, _, _, chosen in ran.policy.routed if chosen == 1]
    # Ready at 4.9 s; the next sample (every 0.25 s) is visible 0.05 s later, at 5.05 s.
    assert min(sent) == pytest.approx(5.1)
    held = 2 * ran.result.duration_s - 2.0
    assert ran.result.gpu_hours == pytest.approx(held / 3600)


def test_load_time_comes_from_the_endpoint_when_the_start_names_none(world: Any, steady: Make) -> None:
    ran = world.run(steady(100, 0.1, output_tokens=50, output_budget=50), starts=(Start(0.0, 1),))
    # Ready at 5 s, when a sample is taken that still says no.
    assert min(at for at, _, _, chosen in ran.policy.routed if chosen == 1) == pytest.approx(5.3)


def test_a_drained_replica_finishes_its_work_and_leaves(world: Any, steady: Make) -> None:
    ran = world.run(
        steady(60, 0.1, output_tokens=100, output_budget=100),
        drains=(Drain(2.05, 0),),
    )
    assert ran.result.total.completed == 60
    assert max(at for at, _, _, chosen in ran.policy.routed if chosen == 0) <= 2.05
    last = max(o.finished_s for o in ran.policy.outcomes if o.endpoint == 0)
    assert ran.result.gpu_hours == pytest.approx((ran.result.duration_s + last) / 3600)
    assert ran.policy.resets == [0]
    assert not ran.table.ready[0]


def test_a_drained_replica_can_be_started_again_and_is_empty(world: Any) -> None:
    rows = [Request(i, at, 1024, 1, 8, (1, 2), 512) for i, at in enumerate((0.0, 1.0, 30.0, 31.0))]
    ran = world.run(rows, sites=("B",), drains=(Drain(5.0, 0),), starts=(Start(10.0, 0, 2.0),))
    assert ran.policy.hits == [0.0, 1023.0, 0.0, 1023.0]
    assert ran.result.total.completed == 4


def test_a_drain_taken_back_in_time_changes_nothing(world: Any, steady: Make) -> None:
    rows = steady(40, 0.1, output_tokens=100, output_budget=100)
    ran = world.run(rows, drains=(Drain(1.05, 0),), starts=(Start(1.15, 0, 2.0),))
    assert ran.policy.resets == []
    assert ran.result.total.completed == 40
    assert ran.table.ready.all()
    assert not ran.table.draining.any()


def test_nobody_ready_is_a_refusal_with_a_reason(world: Any, steady: Make) -> None:
    ran = world.run(steady(3, 0.1), sites=("B",), starts=(Start(50.0, 0, 1.0),))
    assert ran.result.total.rejected == 3
    assert [row["reason"] for row in ran.sink.outcomes] == [RefusalReason.NO_ENDPOINT] * 3
    assert all("endpoint" not in row for row in ran.sink.decisions)
    assert ran.policy.dispatches == 0
    conserved(ran)


def test_residency_holds_and_breaches_are_counted_independently(world: Any, steady: Make) -> None:
    rows = steady(20, 0.1, tenant="local")
    ran = world.run(rows, sites=("C", "B", "C"))
    assert ran.result.endpoint_requests.tolist() == [0, 20, 0]
    assert ran.result.residency_breaches == 0
    assert {request.weight for _, request, _, _ in ran.policy.routed} == {2.0}
    refused = world.run(rows, sites=("C",))
    assert refused.result.total.rejected == 20
    assert refused.sink.outcomes[0]["reason"] == RefusalReason.NO_PERMITTED_SITE


@pytest.mark.parametrize(
    ("fields_", "reason"),
    [
        ({"workload_class": "none"}, RefusalReason.UNKNOWN_CLASS),
        ({"tenant": "none"}, RefusalReason.UNKNOWN_TENANT),
        ({"model": "none@1"}, RefusalReason.UNKNOWN_MODEL),
        ({"input_tokens": 90_000, "output_budget": 20_000}, RefusalReason.CONTEXT_TOO_LONG),
        ({"input_tokens": 15_990, "output_budget": 64}, RefusalReason.CONTEXT_TOO_LONG),
    ],
)
def test_refusals_for_good_are_not_tried_again(
    world: Any, steady: Make, fields_: dict[str, Any], reason: RefusalReason
) -> None:
    ran = world.run(steady(2, 0.1, **fields_), SimSettings(step_noise=0.0, retries=3))
    assert ran.result.total.rejected == 2
    assert ran.result.total.repeats == 0
    assert {row["reason"] for row in ran.sink.outcomes} == {reason}
    conserved(ran)


def test_empty_names_stand_for_the_first_of_their_kind(world: Any, steady: Make) -> None:
    ran = world.run(steady(2, 0.1))
    assert set(ran.result.by_class) == {"chat"}
    assert set(ran.result.by_tenant) == {"open"}
    assert ran.policy.routed[0][1].model == "m@1"


def test_closed_loop_turns_wait_for_their_parent(world: Any) -> None:
    rows = [Request(0, 0.0, 100, 50, 64), Request(1, 0.1, 100, 50, 64, parent_id=0, think_time_s=2.0)]
    ran = world.run(rows)
    first, second = ran.policy.outcomes
    assert second.arrival_s == pytest.approx(first.finished_s + 2.0)


def test_log_rows_fit_the_schema_and_say_what_was_known(world: Any, steady: Make) -> None:
    ran = world.run(steady(40, 0.05, input_tokens=600, output_tokens=30))
    for row in ran.sink.decisions:
        assert set(row) <= set(DECISIONS.names)
    for row in ran.sink.outcomes:
        assert set(row) <= set(OUTCOMES.names)
    keys = [(row["request_id"], row["attempt"]) for row in ran.sink.decisions]
    assert len(set(keys)) == len(keys)
    assert set(keys) == {(row["request_id"], row["attempt"]) for row in ran.sink.outcomes}
    first, later = ran.sink.decisions[0], ran.sink.decisions[10]
    assert (first["queue_depth"], first["inflight_tokens"]) == (0.0, 0.0)  # its own dispatch is not charged yet
    assert later["queue_depth"] + later["running"] > 0
    assert later["candidates"] == 2
    assert later["policy"] == "spy"
    outcome = ran.sink.outcomes[0]
    assert outcome["tpot_s"] == pytest.approx((outcome["e2e_s"] - outcome["ttft_s"]) / 29)


def test_log_signals_are_those_of_the_latency_models(world: Any, steady: Make) -> None:
    seen: list[dict[str, float]] = []

    class Watching(type(world.run(steady(1, 1.0)).policy)):  # type: ignore[misc]
        def choose(self, request: Any, candidates: Any, view: Any) -> int:
            chosen = super().choose(request, candidates, view)
            signals = observe(view.endpoints, np.array([chosen]), view.now_s, SignalSettings())
            seen.append({"queue_depth": signals.queue_depth[0], "kv_use": signals.kv_use[0]})
            return int(chosen)

    ran = world.run(steady(40, 0.05, input_tokens=600, output_tokens=30), policy=Watching())
    for row, signals in zip(ran.sink.decisions, seen, strict=True):
        assert row["queue_depth"] == signals["queue_depth"]
        assert row["kv_use"] == signals["kv_use"]


def test_progress_is_told_the_clock(world: Any, steady: Make) -> None:
    told: list[float] = []
    world.run(steady(100, 0.2), SimSettings(timeline_s=1.0), progress=told.append)
    assert told == sorted(told)
    assert len(told) >= 19


def test_an_empty_trace_is_an_empty_result(world: Any) -> None:
    result = world.run([]).result
    assert result.total.offered == 0
    assert result.duration_s == 0.0
    assert result.goodput_per_gpu_hour == 0.0


def test_bad_input_is_named(world: Any, steady: Make) -> None:
    with pytest.raises(SettingError, match="no such endpoint"):
        world.run(steady(1, 1.0), SimSettings(failures=(FailureEvent(0.0, 9, "crash", 1.0),)))
    with pytest.raises(SettingError, match="no such endpoint"):
        world.run(steady(1, 1.0), drains=(Drain(0.0, -1),))
    with pytest.raises(TraceError, match="origin"):
        world.run(steady(1, 1.0, origin="nowhere"))
    specs = [world.spec(0)]
    with pytest.raises(SettingError, match="differ"):
        simulate(world.fleet(), [], [], world.run([]).policy, QUIET, table=EndpointTable(specs))
    mixed = [Request(0, 0.0, 600, 1, 8, (1, 2), 512), Request(1, 1.0, 600, 1, 8, (1, 2), 300)]
    with pytest.raises(TraceError, match="block_tokens"):
        world.run(mixed, sites=("B",))


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: FailureEvent(-1.0, 0, "crash", 1.0), "at_s"),
        (lambda: FailureEvent(0.0, 0, "flood", 1.0), "kind"),  # type: ignore[arg-type]
        (lambda: FailureEvent(0.0, 0, "hang", math.nan), "duration_s"),
        (lambda: FailureEvent(0.0, 0, "slow", 1.0, 0.0), "factor"),
        (lambda: Start(0.0, 0, -1.0), "load_s"),
        (lambda: Start(math.nan, 0), "at_s"),
        (lambda: Drain(-0.5, 0), "at_s"),
        (lambda: SimSettings(time_limit_s=0.0), "time_limit_s"),
        (lambda: SimSettings(step_noise=0.6), "step_noise"),
    ],
)
def test_settings_out_of_range_are_named(make: Make, field: str) -> None:
    with pytest.raises(SettingError, match=field):
        make()


def test_a_policy_may_not_leave_the_candidates(world: Any, steady: Make) -> None:
    class Rogue(type(world.run(steady(1, 1.0)).policy)):  # type: ignore[misc]
        def choose(self, request: Any, candidates: Any, view: Any) -> int:
            return 0

    with pytest.raises(RuntimeError, match="not a candidate"):
        world.run(steady(1, 1.0, tenant="local"), sites=("C", "B"), policy=Rogue())


def test_deadline_classes_are_measured_by_their_deadline(make_world: Make, steady: Make) -> None:
    ran = make_world(slo=Slo(deadline_s=0.3)).run(
        [*steady(1, 1.0, output_tokens=10), Request(5, 50.0, 200, 60, 64)]
    )
    assert ran.result.total.met == 1


def test_a_request_cancelled_on_its_way_is_never_served(make_world: Make, steady: Make) -> None:
    ran = make_world(rtt_s=0.4, timeout_s=0.1).run(steady(5, 1.0))
    assert ran.result.total.cancelled == 5
    assert ran.result.total.hit_rate == 0.0
    assert all(row["e2e_s"] is None and row["cached_tokens"] is None for row in ran.sink.outcomes)
    assert not ran.table.inflight.any()


def test_tokens_on_their_way_back_to_a_client_that_left_count_for_nothing(make_world: Make, steady: Make) -> None:
    ran = make_world(rtt_s=0.4, timeout_s=0.35).run(steady(5, 1.0, output_tokens=1))
    assert ran.result.total.cancelled == 5
    assert ran.result.total.completed == 0
    assert ran.policy.first_tokens == 0
    assert ran.result.extra["wasted_tokens_cancelled"] == 5 * 200


def test_a_prompt_that_an_engine_could_never_hold_is_refused_by_it(world: Any) -> None:
    rows = [Request(0, 0.0, 15_900, 200, 200), Request(1, 1.0, 100, 5, 8)]
    ran = world.run(rows, SimSettings(step_noise=0.0, retries=2))
    assert (ran.result.total.rejected, ran.result.total.completed) == (1, 1)
    assert ran.policy.dispatches == 2
    assert ran.sink.outcomes[0]["reason"] == RefusalReason.CONTEXT_TOO_LONG


def test_an_endpoint_without_a_link_is_no_candidate(world: Any, steady: Make) -> None:
    ran = world.run(steady(6, 0.1, origin="B"), sites=("C", "B"))
    assert ran.result.endpoint_requests.tolist() == [0, 6]
    lost = world.run(steady(2, 0.1, origin="B"), sites=("C",))
    assert {row["reason"] for row in lost.sink.outcomes} == {RefusalReason.NO_ENDPOINT}
