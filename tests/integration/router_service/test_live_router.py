"""The router without gRPC: decisions, leases, reports, refusals, reloads."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from data.errors import InputError
from data.fleet.types import Fleet, Tenant
from data.types import RefusalReason, Status
from router.pb.v1 import router_pb2 as pb
from router.serving.explain import explain_route
from router.serving.fleet_state import FleetSettings
from router.serving.live_build import next_fleet_state
from router.serving.replies import MESSAGES
from router.serving.wire_request import InvalidRequestError
from router.slomax.refusals import STATUS


def test_a_reply_says_where_and_what_is_expected(world: Any) -> None:
    reply = world.ask(request_id="r1")
    placed = reply.placement
    assert reply.request_id == "r1"
    assert placed.endpoint_id.startswith("B/c/")
    assert placed.address == world.live.rows.addresses[world.live.rows.row(placed.endpoint_id)]
    assert placed.site == "B"
    assert placed.lease_id >= world.live.leases.base
    assert 0 < placed.ttft.p50_s < placed.ttft.p90_s
    assert 0 < placed.tpot.p50_s < placed.tpot.p90_s
    assert placed.lease_s == 60.0  # one and a half times the client's time limit of 40 s
    assert reply.workload_class == "interactive"
    assert reply.model_version == "prior"


def test_work_in_flight_is_charged_and_released_exactly_once(world: Any) -> None:
    replies = [world.ask() for _ in range(8)]
    assert world.live.core.table.inflight.tolist() == [2.0, 2.0, 2.0, 2.0]
    for reply in replies:
        lease = reply.placement.lease_id
        assert world.tell(lease, first_token=pb.FirstToken()) == "accepted"
        assert world.tell(lease, finished=pb.Finished(output_tokens=9)) == "accepted"
        assert world.tell(lease, finished=pb.Finished(output_tokens=9)) == "unknown_lease"
    assert world.counts() == 0
    assert len(world.live.leases) == 0


def test_any_mix_of_endings_leaves_every_counter_at_zero_f012(world: Any) -> None:
    rng = np.random.default_rng(5)
    open_leases: list[int] = []
    endings: list[dict[str, Any]] = [
        {"finished": pb.Finished(output_tokens=3)},
        {"cancelled": pb.Cancelled()},
        {"cancelled": pb.Cancelled(timed_out=True, output_tokens=2)},
        {"error": pb.Error(http_status=400)},
        {"error": pb.Error(http_status=503, output_tokens=1)},
        {"first_token": pb.FirstToken(ttft_s=0.1)},
    ]
    for _ in range(2000):
        reply = world.ask(input_tokens=int(rng.integers(1, 4000)))
        if reply.WhichOneof("result") == "placement":
            open_leases.append(reply.placement.lease_id)
        world.clock.now_s += float(rng.exponential(0.5))
        while len(open_leases) > 20:
            lease = open_leases.pop(int(rng.integers(len(open_leases))))
            world.tell(lease, **endings[int(rng.integers(len(endings)))])
        world.live.tick()
    world.clock.now_s += 1000
    world.live.tick()
    assert world.counts() == 0
    assert len(world.live.leases) == 0
    assert len(world.sink.outcomes) == sum(row.get("endpoint") is not None for row in world.sink.decisions)


def test_a_leaked_lease_frees_itself_under_continuous_traffic_f061(world: Any) -> None:
    leaked = world.ask().placement
    for _ in range(100):
        world.clock.now_s += 1.0
        reply = world.ask()
        world.tell(reply.placement.lease_id, finished=pb.Finished(output_tokens=1))
        world.live.tick()
    assert len(world.live.leases) == 0
    assert world.counts() == 0
    expired = [row for row in world.sink.outcomes if row["reason"] == "lease_expired"]
    assert len(expired) == 1
    assert world.tell(leaked.lease_id, finished=pb.Finished(output_tokens=1)) == "unknown_lease"


def test_a_report_renews_the_lease(world: Any) -> None:
    lease = world.ask().placement.lease_id
    world.clock.now_s += 50
    assert world.tell(lease, first_token=pb.FirstToken()) == "accepted"
    world.clock.now_s += 50
    world.live.tick()
    assert world.tell(lease, finished=pb.Finished(output_tokens=9)) == "accepted"


@pytest.mark.parametrize(
    ("events", "status", "reason"),
    [
        ([{"finished": pb.Finished(output_tokens=5)}], Status.COMPLETED, None),
        ([{"finished": pb.Finished(output_tokens=0)}], Status.FAILED, "no_output"),
        ([{"finished": pb.Finished(output_tokens=0, finish_reason="stop")}], Status.COMPLETED, None),
        ([{"error": pb.Error(http_status=200)}], Status.FAILED, "error_before_first_token"),
        ([{"first_token": pb.FirstToken()}, {"error": pb.Error()}], Status.FAILED, "error_mid_stream"),
        ([{"error": pb.Error(http_status=200, output_tokens=3)}], Status.FAILED, "error_mid_stream"),
        ([{"error": pb.Error(http_status=422)}], Status.CLIENT_ERROR, "client_error"),
        ([{"error": pb.Error(http_status=429)}], Status.FAILED, "engine_busy"),
        ([{"error": pb.Error(timed_out=True)}], Status.FAILED, "timeout"),
        ([{"cancelled": pb.Cancelled()}], Status.CANCELLED, "client_cancel"),
        ([{"cancelled": pb.Cancelled(timed_out=True)}], Status.CANCELLED, "client_timeout"),
    ],
)
def test_the_terminal_event_decides_the_outcome_f067(
    world: Any, events: list[dict[str, Any]], status: Status, reason: str | None
) -> None:
    lease = world.ask().placement.lease_id
    for event in events:
        assert world.tell(lease, **event) == "accepted"
    (row,) = world.sink.outcomes
    assert (row["status"], row["reason"]) == (status, reason)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_client_errors_never_hurt_an_endpoint_f006(make_world: Any, endpoint: Any, status: int) -> None:
    world = make_world([endpoint(0)])
    for _ in range(10):
        world.tell(world.ask().placement.lease_id, error=pb.Error(http_status=status))
    assert world.live.core.table.healthy.all()
    assert world.ask().WhichOneof("result") == "placement"


def test_server_errors_open_the_breaker_f006(make_world: Any, endpoint: Any) -> None:
    world = make_world([endpoint(0)])
    for _ in range(3):
        world.tell(world.ask().placement.lease_id, error=pb.Error(http_status=502))
    assert world.ask().refusal.reason == "all_unhealthy"
    assert not world.live.safe() or not world.live.core.table.healthy.any()


def test_each_attempt_has_its_own_outcome_f063(world: Any) -> None:
    seen: list[str] = []
    for attempt, event in enumerate(
        [
            {"error": pb.Error(http_status=503)},
            {"error": pb.Error(timed_out=True)},
            {"finished": pb.Finished(output_tokens=4)},
        ]
    ):
        placed = world.ask(request_id="q1", attempt=attempt, avoid_endpoints=seen).placement
        assert placed.endpoint_id not in seen
        seen.append(placed.endpoint_id)
        world.tell(placed.lease_id, **event)
    rows = world.sink.outcomes
    assert [row["attempt"] for row in rows] == [0, 1, 2]
    assert len({row["request_id"] for row in rows}) == 1
    assert [row["status"] for row in rows] == [Status.FAILED, Status.FAILED, Status.COMPLETED]
    assert [row["endpoint"] for row in world.sink.decisions] == seen


def test_avoided_endpoints_are_tried_again_only_if_nothing_else_is_left(make_world: Any, endpoint: Any) -> None:
    world = make_world([endpoint(0), endpoint(1)])
    both = ["B/c/0", "B/c/1"]
    assert world.ask(avoid_endpoints=["B/c/0"]).placement.endpoint_id == "B/c/1"
    assert world.ask(avoid_endpoints=both).placement.endpoint_id in both


def test_retries_pass_the_same_hard_filters(make_world: Any, endpoint: Any) -> None:
    world = make_world([endpoint(0, "B"), endpoint(0, "C")])
    reply = world.ask(tenant="bank", attempt=1, avoid_endpoints=["B/c/0"])
    assert reply.placement.endpoint_id == "B/c/0"  # the other site is in a zone the tenant may not use


def test_asking_the_same_again_gives_the_same_answer_and_charges_once(world: Any) -> None:
    first = world.ask(request_id="r1")
    again = world.ask(request_id="r1")
    assert again == first
    assert world.live.core.table.inflight.sum() == 1
    # Another prompt under the same id is another request.
    other = world.ask(request_id="r1", input_tokens=50)
    assert other.placement.lease_id != first.placement.lease_id
    assert world.live.core.table.inflight.sum() == 2


def test_asking_again_after_the_endpoint_left_gives_another_one(make_world: Any, endpoint: Any) -> None:
    world = make_world([endpoint(0), endpoint(1)])
    first = world.ask(request_id="r1").placement.endpoint_id
    world.live.apply_endpoints([endpoint(1 if first == "B/c/0" else 0)])
    second = world.ask(request_id="r1").placement.endpoint_id
    assert second != first


def test_a_lease_of_another_client_is_unknown(world: Any) -> None:
    lease = world.ask(owner="proxy-1").placement.lease_id
    assert world.tell(lease, owner="proxy-2", cancelled=pb.Cancelled()) == "unknown_lease"
    assert world.live.core.table.inflight.sum() == 1
    assert world.tell(lease, owner="proxy-1", cancelled=pb.Cancelled()) == "accepted"


@pytest.mark.parametrize(
    "event",
    [
        {"first_token": pb.FirstToken(ttft_s=-1.0)},
        {"first_token": pb.FirstToken(ttft_s=math.nan)},
        {"finished": pb.Finished(output_tokens=2**32 - 1)},
        {"finished": pb.Finished(output_tokens=2, ttft_s=2.0, e2e_s=1.0)},
        {"error": pb.Error(http_status=700)},
        {},
    ],
)
def test_a_report_out_of_range_is_counted_and_changes_nothing(world: Any, event: dict[str, Any]) -> None:
    lease = world.ask().placement.lease_id
    assert world.tell(lease, **event) == "invalid"
    assert world.live.core.table.inflight.sum() == 1
    assert world.tell(lease, cancelled=pb.Cancelled()) == "accepted"


def test_times_in_the_log_count_from_the_decision_without_the_network(world: Any) -> None:
    lease = world.ask().placement.lease_id
    world.clock.now_s += 0.5
    world.tell(lease, first_token=pb.FirstToken(ttft_s=0.4))
    world.clock.now_s += 1.0
    world.tell(lease, finished=pb.Finished(output_tokens=11, e2e_s=1.4, cached_tokens=64))
    (row,) = world.sink.outcomes
    assert row["ttft_s"] == pytest.approx(0.398)  # 2 ms of round trip less
    assert row["tpot_s"] == pytest.approx(0.1)
    assert row["cached_tokens"] == 64


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tenant": "nobody"}, "unknown_tenant"),
        ({"model": "m@9"}, "unknown_model"),
        ({"model": "m@2"}, "no_endpoint"),
        ({"input_tokens": 9000}, "context_too_long"),
        ({"tenant": "nowhere"}, "no_permitted_site"),
    ],
)
def test_refusals_carry_reason_status_and_hint_f052(world: Any, fields: dict[str, Any], reason: str) -> None:
    reply = world.ask(**fields)
    refused = reply.refusal
    assert refused.reason == reason
    assert refused.http_status == STATUS[RefusalReason(reason)]
    assert refused.message == MESSAGES[RefusalReason(reason)]
    may_help = refused.http_status in (429, 503)
    assert refused.HasField("retry_after_s") == may_help
    if may_help:
        assert 1.0 <= refused.retry_after_s < 150.0
    assert world.live.core.table.inflight.sum() == 0
    assert len(world.live.leases) == 0


def test_every_reason_has_a_message_for_people() -> None:
    assert set(MESSAGES) == set(RefusalReason)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"block_hashes": b"1234567"}, "block_hashes"),
        ({"token_ids": b"123", "input_tokens": 0}, "token_ids"),
        ({"token_ids": b"12341234"}, "input_tokens"),
        ({"token_ids": b"1234" * 1000, "block_hashes": b"12345678"}, "not both"),
        ({"block_hashes": b"12345678" * 70}, "block_hashes"),
        ({"input_tokens": 0}, "input_tokens"),
        ({"origin": "Z"}, "origin"),
        ({"attempt": 5000}, "attempt"),
        ({"request_id": "x" * 200}, "request_id"),
        ({"queue_ttl_s": -1.0}, "queue_ttl_s"),
        ({"avoid_endpoints": ["x"] * 100}, "avoid_endpoints"),
    ],
)
def test_wrong_requests_are_named_by_field(world: Any, fields: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidRequestError, match=word):
        world.ask(**fields)
    assert world.live.core.table.inflight.sum() == 0


def test_a_known_prefix_draws_the_request_and_is_predicted(world: Any, hashes: Callable[..., bytes]) -> None:
    blocks = hashes(*range(1, 61))
    first = world.ask(block_hashes=blocks)
    assert first.placement.predicted_hit_tokens == 0
    again = world.ask(block_hashes=blocks)
    assert again.placement.endpoint_id == first.placement.endpoint_id
    assert again.placement.predicted_hit_tokens == 60 * 16


def test_ties_are_spread_and_seeded_f009(make_world: Any) -> None:
    def sequence(seed: int) -> list[str]:
        world = make_world(seed=seed)
        found = []
        for _ in range(400):
            placed = world.ask().placement
            found.append(placed.endpoint_id)
            world.tell(placed.lease_id, finished=pb.Finished(output_tokens=1))
        return found

    one = sequence(1)
    assert one == sequence(1)
    assert one != sequence(2)
    assert all(60 <= one.count(f"B/c/{i}") <= 140 for i in range(4))


def test_old_reports_degrade_the_answer_but_never_stop_it_f001(make_world: Any, endpoint: Any) -> None:
    world = make_world([endpoint(0), endpoint(1)])
    for _ in range(10):
        reply = world.ask()
        assert list(reply.degraded) == ["stale_metrics"]
    assert world.live.core.table.inflight.tolist() == [5.0, 5.0]


def test_endpoints_come_and_go_while_others_keep_their_work(world: Any, endpoint: Any) -> None:
    kept = world.ask().placement
    before = world.live.core.table.inflight.copy()
    row = world.live.rows.row(kept.endpoint_id)
    others = [endpoint(i) for i in range(4)]
    changes = world.live.apply_endpoints([*others, endpoint(9), endpoint(10)])
    assert (changes.added, changes.grown) == (("B/c/9", "B/c/10"), True)
    assert world.live.core.table.inflight[row] == before[row] == 1
    gone = world.live.apply_endpoints([each for each in others if each.endpoint_id != kept.endpoint_id])
    assert set(gone.removed) == {kept.endpoint_id, "B/c/9", "B/c/10"}
    # Its caller may still tell how it ended; that weighs on nobody.
    assert world.tell(kept.lease_id, finished=pb.Finished(output_tokens=4)) == "accepted"
    assert world.counts() == 0
    assert world.sink.outcomes[-1]["status"] == Status.COMPLETED


def test_a_freed_row_serves_another_endpoint(make_world: Any, endpoint: Any) -> None:
    world = make_world([endpoint(0), endpoint(1)])
    old = world.ask(avoid_endpoints=["B/c/1"]).placement
    world.live.apply_endpoints([endpoint(1)])
    world.live.apply_endpoints([endpoint(1), endpoint(7)])
    assert len(world.live.core.table) == 2
    new = world.ask(avoid_endpoints=["B/c/1"]).placement
    assert (new.endpoint_id, new.address) == ("B/c/7", "http://10.0.0.8:8000")
    world.tell(old.lease_id, first_token=pb.FirstToken())
    world.tell(old.lease_id, error=pb.Error(http_status=500))
    row = world.live.rows.row("B/c/7")
    assert world.live.core.table.inflight[row] == 1
    assert world.live.core.table.decoding[row] == 0


def test_a_restart_forgets_the_cache_of_that_endpoint_alone(
    make_world: Any, endpoint: Any, hashes: Callable[..., bytes]
) -> None:
    world = make_world([endpoint(0, incarnation="a"), endpoint(1, incarnation="a")])
    blocks = hashes(*range(1, 61))
    holder = world.ask(block_hashes=blocks).placement.endpoint_id
    number = int(holder[-1])
    changed = [endpoint(i, incarnation="b" if i == number else "a") for i in range(2)]
    assert world.live.apply_endpoints(changed).restarted == (holder,)
    assert world.ask(block_hashes=blocks).placement.predicted_hit_tokens == 0


def test_a_repeated_list_of_endpoints_changes_nothing(world: Any, endpoint: Any) -> None:
    revision = world.live.serving.revision
    assert not world.live.apply_endpoints([endpoint(i) for i in range(4)])
    assert world.live.serving.revision == revision


def test_a_bad_list_of_endpoints_is_refused_as_a_whole_f129(world: Any, endpoint: Any) -> None:
    with pytest.raises(InputError, match="unique"):
        world.live.apply_endpoints([endpoint(8), endpoint(8)])
    assert [live.endpoint_id for live in world.live.rows.endpoints()] == [f"B/c/{i}" for i in range(4)]
    assert world.ask().WhichOneof("result") == "placement"


def test_another_fleet_file_swaps_permissions_and_keeps_work(world: Any, fleet: Fleet, endpoint: Any) -> None:
    lease = world.ask().placement.lease_id
    changed = replace(fleet, tenants=(*fleet.tenants, Tenant("new")))
    assert world.ask(tenant="new").refusal.reason == "unknown_tenant"
    state = next_fleet_state(world.live, changed, "f2", FleetSettings())
    assert world.ask(tenant="new").refusal.reason == "unknown_tenant"
    world.live.apply_fleet(state, [endpoint(i) for i in range(4)])
    assert world.ask(tenant="new").WhichOneof("result") == "placement"
    assert world.live.state.digest == "f2"
    assert world.tell(lease, finished=pb.Finished(output_tokens=1)) == "accepted"


def test_a_fleet_with_bad_endpoints_leaves_everything_as_it_is_f129(
    world: Any, fleet: Fleet, endpoint: Any
) -> None:
    state = next_fleet_state(world.live, replace(fleet, tenants=(Tenant("new"),)), "f2", FleetSettings())
    with pytest.raises(InputError):
        world.live.apply_fleet(state, [endpoint(1), endpoint(1)])
    assert world.live.state.digest == "f1"
    assert world.ask().WhichOneof("result") == "placement"


def test_the_numbers_of_leases_and_requests_survive_a_fleet_reload(
    world: Any, fleet: Fleet, endpoint: Any
) -> None:
    first = world.ask().placement.lease_id
    world.live.apply_fleet(
        next_fleet_state(world.live, fleet, "f2", FleetSettings()), [endpoint(i) for i in range(4)]
    )
    second = world.ask().placement.lease_id
    assert second == first + 1
    numbers = [row["request_id"] for row in world.sink.decisions]
    assert len(set(numbers)) == len(numbers)


def test_draining_refuses_with_a_reason_and_takes_reports(world: Any) -> None:
    lease = world.ask().placement.lease_id
    assert world.live.safe()
    world.live.begin_drain()
    assert not world.live.safe()
    refused = world.ask().refusal
    assert (refused.reason, refused.http_status) == ("shutting_down", 503)
    assert world.tell(lease, finished=pb.Finished(output_tokens=1)) == "accepted"
    world.live.reports.give_up_all(world.clock())


def test_what_is_open_at_the_end_is_written_down(world: Any) -> None:
    for _ in range(3):
        world.ask()
    assert world.live.reports.give_up_all(world.clock()) == 3
    assert [row["reason"] for row in world.sink.outcomes] == ["router_stopped"] * 3
    assert world.counts() == 0


def test_explain_names_candidates_and_why_others_are_out(make_world: Any, endpoint: Any, asked: Any) -> None:
    world = make_world(
        [
            endpoint(0),
            endpoint(1, draining=True),
            endpoint(2, ready=False),
            endpoint(0, "C"),
        ]
    )
    before = world.live.clock(), world.counts()
    reply = explain_route(world.live, asked(tenant="bank"))
    assert [each.endpoint_id for each in reply.candidates] == ["B/c/0"]
    assert reply.candidates[0].chosen
    assert reply.candidates[0].features["input_tokens"] == 1000.0
    assert {each.endpoint_id: each.reason for each in reply.rejected} == {
        "B/c/1": "draining",
        "B/c/2": "not_ready",
        "C/c/0": "not_permitted",
    }
    assert reply.decision.placement.endpoint_id == "B/c/0"
    assert reply.decision.placement.lease_id == 0
    assert reply.class_rule
    assert (world.live.clock(), world.counts()) == before
    assert not world.sink.decisions


def test_explain_of_a_refusal_gives_the_reason(world: Any, asked: Any) -> None:
    assert explain_route(world.live, asked(tenant="nowhere")).decision.refusal.reason == "no_permitted_site"
    assert explain_route(world.live, asked(tenant="x")).decision.refusal.reason == "unknown_tenant"


def test_no_statistic_counts_an_endpoint_that_is_out_f005(make_world: Any, endpoint: Any) -> None:
    with_it = make_world([endpoint(0), endpoint(1), endpoint(2, draining=True)], seed=3)
    without = make_world([endpoint(0), endpoint(1)], seed=3)
    assert [with_it.ask().placement.endpoint_id for _ in range(30)] == [
        without.ask().placement.endpoint_id for _ in range(30)
    ]


def test_output_lengths_of_a_class_are_learned(world: Any) -> None:
    before = world.live.state.reader.lengths.mean("interactive")
    for _ in range(200):
        world.tell(world.ask().placement.lease_id, finished=pb.Finished(output_tokens=10))
    assert world.live.state.reader.lengths.mean("interactive") < before / 2


def test_a_policy_without_predictions_serves_too(make_world: Any, asked: Any) -> None:
    world = make_world(policy="least_request")
    reply = world.ask()
    assert not reply.placement.HasField("ttft")
    assert list(reply.degraded) == ["stale_metrics"]
    explained = explain_route(world.live, asked())
    assert len(explained.candidates) == 4
    assert world.tell(reply.placement.lease_id, finished=pb.Finished(output_tokens=1)) == "accepted"
