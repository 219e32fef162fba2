"""The façade: who goes, who waits, in which order, for how long."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from data.fleet.types import Reservation, Tenant, WorkloadClass
from data.types import RefusalReason, Slo, Status
from router.slomax.fair_queue import MOST_FLOWS
from router.slomax.registry import FLOWS
from router.slomax.types import Admitted, Queued, Refused

GOLD = WorkloadClass("gold", Slo(ttft_s=1.0), floor_share=0.0)
BATCH = WorkloadClass("batch", Slo(deadline_s=600.0), floor_share=0.05)
PLAIN = {"pace": False, "demote": False, "reserve": 0.0}


def serve(world: Any, arrivals: list[tuple[float, str]], service_s: float, until_s: float) -> Counter[str]:
    """One request at a time and ``service_s`` each; completed requests by class."""
    events: list[tuple[float, int, str]] = []
    for i, (at, kind) in enumerate(arrivals):
        heapq.heappush(events, (at, i, kind))
    done: Counter[str] = Counter()
    seen = 0
    while events and events[0][0] <= until_s:
        now_s, i, what = heapq.heappop(events)
        if what == "(end)":
            kind = world.kinds[i]
            done[kind] += 1
            world.first_token(i, now_s)
            world.finish(i, now_s)
        else:
            world.kinds[i] = what
            world.offer(world.request(i, what, 100), now_s)
        for at, request, _ in world.sent[seen:]:
            heapq.heappush(events, (at + service_s, request, "(end)"))
        seen = len(world.sent)
    return done


def steady(rate: float, kind: str, seconds: float) -> list[tuple[float, str]]:
    return [(i / rate, kind) for i in range(int(rate * seconds))]


@pytest.mark.parametrize(
    ("gold", "right"), [(150.0, {"gold": 95.0, "batch": 5.0}), (60.0, {"gold": 60.0, "batch": 20.0})]
)
def test_f042_a_floor_is_kept_and_nothing_is_left_idle(hand: Any, gold: float, right: dict[str, float]) -> None:
    """F042: batch gets its floor of 5 % under a flood of gold, and all it wants when gold leaves room."""
    seconds = 30.0
    world = hand("slomax", PLAIN, replicas=1, classes=(GOLD, BATCH), max_seqs=1)
    world.kinds = {}
    done = serve(world, steady(gold, "gold", seconds) + steady(20.0, "batch", seconds), 0.01, seconds)
    for kind, rate in right.items():
        assert done[kind] / seconds == pytest.approx(rate, rel=0.1)


def test_f042_without_a_floor_the_flood_starves_the_rest(hand: Any) -> None:
    """F042: the floor is what keeps batch alive: without it nothing of it is served."""
    world = hand("slomax", PLAIN, replicas=1, classes=(GOLD, replace(BATCH, floor_share=0.0)), max_seqs=1)
    world.kinds = {}
    done = serve(world, steady(150.0, "gold", 10.0) + steady(20.0, "batch", 10.0), 0.01, 10.0)
    assert done["batch"] <= 1


@pytest.mark.parametrize("flow", ["slomax", "strict_priority", "token_pools"])
def test_f043_the_shortest_time_to_live_counts_and_is_checked_before_dispatch(hand: Any, flow: str) -> None:
    """F043: request 2 s, class 5 s, a longer wish of the caller does not help; batch is served after 120 s."""
    classes = (
        WorkloadClass("interactive", Slo(ttft_s=10.0), queue_ttl_s=5.0),
        WorkloadClass("batch", Slo(deadline_s=600.0)),
    )
    limit = {"slots": 1} if flow != "slomax" else {}
    world = hand(flow, limit, replicas=1, classes=classes, max_seqs=1)
    assert not isinstance(world.offer(world.request(0, "batch"), 0.0), Refused)
    assert isinstance(world.offer(world.request(1, "interactive"), 0.0, ttl_s=2.0), Queued)
    assert isinstance(world.offer(world.request(2, "interactive"), 0.0, ttl_s=60.0), Queued)
    assert isinstance(world.offer(world.request(3, "batch"), 0.0), Queued)
    assert world.flow.wakeup_s(0.0) <= 2.0
    world.pump(1.99)
    assert not world.dropped
    world.pump(2.0)
    assert world.dropped == [(1, RefusalReason.EXPIRED)]
    world.first_token(0, 6.0)
    world.finish(0, 6.0)
    assert world.dropped[1:] == [(2, RefusalReason.EXPIRED)]
    assert [request for _, request, _ in world.sent] == [0, 3]


def test_f043_an_expired_request_is_not_let_in(hand: Any) -> None:
    """F043: the time to live is checked at the entrance too."""
    world = hand()
    verdict = world.offer(world.request(0), 5.0, ttl_s=0.0)
    assert isinstance(verdict, Refused)
    assert verdict.reason is RefusalReason.EXPIRED


@pytest.mark.parametrize("flow", ["slomax", "strict_priority", "weighted_deficit_dynamo"])
def test_f048_the_bound_counts_every_waiter_and_the_deadline_is_absolute(hand: Any, flow: str) -> None:
    """F048: with room for 10 and no capacity 20 of 30 are refused at once and 10 expire at their own time."""
    classes = (WorkloadClass("interactive", Slo(ttft_s=100.0), queue_ttl_s=3.0),)
    world = hand(flow, {"queue_requests": 10}, replicas=1, classes=classes, tenants=(Tenant("t"),))
    for row in range(1):
        world.table.inflight[row] = 1000
        world.table.waiting_prefill_s[row] = 1e6
        world.table.inflight_uncached_tokens[row] = 1e9
        world.table.prefill_since_s[row] = 0.0
    verdicts = [world.offer(world.request(i), i / 30) for i in range(30)]
    assert [isinstance(one, Queued) for one in verdicts] == [True] * 10 + [False] * 20
    assert {one.reason for one in verdicts[10:] if isinstance(one, Refused)} == {RefusalReason.QUEUE_FULL}
    for i in range(10):
        world.pump(i / 30 + 3.0 - 0.01)
        assert len(world.dropped) == i
        world.pump(i / 30 + 3.0)
        assert len(world.dropped) == i + 1
    assert not world.sent


@pytest.mark.parametrize("flow", ["slomax", "strict_priority", "token_pools", "weighted_deficit_dynamo"])
def test_f062_after_a_cancel_storm_the_gauge_is_zero(hand: Any, flow: str) -> None:
    """F062: a thousand waiting requests cancelled in random order leave nothing behind."""
    classes = (WorkloadClass("interactive", Slo(ttft_s=1e6)), WorkloadClass("batch", Slo(deadline_s=1e6)))
    world = hand(flow, {}, replicas=1, classes=classes, tenants=(Tenant("t", concurrent_budget=5000),))
    world.table.inflight[:] = 1000
    world.table.waiting_prefill_s[:] = 1e6
    world.table.inflight_uncached_tokens[:] = 1e9
    world.table.prefill_since_s[:] = 0.0
    tickets = []
    for i in range(1000):
        verdict = world.offer(world.request(i, ("interactive", "batch")[i % 2]), 0.0)
        assert isinstance(verdict, Queued)
        tickets.append(verdict.ticket)
    assert world.waiting() == 1000
    random.Random(3).shuffle(tickets)
    for count, ticket in enumerate(tickets):
        assert world.flow.cancel(ticket, 1.0)
        assert not world.flow.cancel(ticket, 1.0)
        assert world.waiting() == 999 - count
    assert all(one.in_flight == 0 for one in world.flow.status(1.0).budgets)
    world.table.inflight[:] = 0
    world.table.waiting_prefill_s[:] = 0
    world.table.inflight_uncached_tokens[:] = 0
    world.offer(world.request(2000), 2.0)
    assert [request for _, request, _ in world.sent] == [2000]


def test_f049_a_returned_request_goes_before_later_ones_and_the_boost_is_bounded(hand: Any) -> None:
    """F049: original arrival and a bounded boost: three returns and thirty are equally urgent."""
    from router.slomax.types import Arrival

    world = hand("slomax", {"boost_s": 0.5, "demote": False}, replicas=1, max_seqs=1)
    world.offer(world.request(0), 0.0)
    for request, attempt, arrived_s in ((1, 0, 0.5), (2, 3, 0.9), (3, 30, 0.8), (4, 0, 0.1)):
        arrival = Arrival(world.request(request, attempt=attempt), arrived_s)
        assert isinstance(world.flow.offer(arrival, 0.95), Queued)
    order = []
    for step in range(4):
        last = world.running[0]
        world.first_token(last, 1.0 + step * 0.01)
        world.finish(last, 1.0 + step * 0.01)
        order.append(world.running[0])
    assert order == [3, 2, 4, 1]


def test_f055_a_request_that_finds_the_queue_full_uses_no_budget(hand: Any) -> None:
    """F055: refused for the bound of the queue, nothing of any budget is gone."""
    tenants = (Tenant("t", requests_per_s_budget=0.1, tokens_per_s_budget=100.0),)
    world = hand("slomax", {"queue_requests": 1}, replicas=1, max_seqs=1, tenants=tenants)
    world.offer(world.request(0), 0.0)
    world.offer(world.request(1), 0.0)
    before = world.flow.status(0.0)
    verdict = world.offer(world.request(2), 0.0)
    assert isinstance(verdict, Refused)
    assert verdict.reason is RefusalReason.QUEUE_FULL
    assert world.flow.status(0.0) == before


def test_budgets_are_settled_with_what_was_used(hand: Any) -> None:
    world = hand("slomax", {"budget_burst_s": 1.0}, tenants=(Tenant("t", tokens_per_s_budget=1500.0),))
    assert isinstance(world.offer(world.request(0), 0.0), Admitted)  # 1,000 + 400 reserved
    verdict = world.offer(world.request(1), 0.0)
    assert isinstance(verdict, Refused)
    assert verdict.reason is RefusalReason.BUDGET_EXHAUSTED
    assert verdict.status == 429
    world.first_token(0, 0.0)
    world.finish(0, 0.0, output=10)
    assert world.flow.status(0.0).budgets[0].tokens_left == pytest.approx(490.0)


def test_what_could_not_be_sent_gives_its_budget_back(hand: Any) -> None:
    from router.slomax.types import Arrival

    world = hand("slomax", {}, tenants=(Tenant("t", tokens_per_s_budget=1500.0, requests_per_s_budget=1.0),))
    before = world.flow.status(0.0)
    request = world.request(0)
    assert isinstance(world.flow.offer(Arrival(request, 0.0), 0.0), Admitted)
    assert world.flow.status(0.0) != before
    world.flow.abandoned(request, 0.0)
    assert world.flow.status(0.0) == before


def test_tenants_share_a_class_by_weight_in_work(hand: Any) -> None:
    """A tenant of three times the weight gets three times the work, whatever the size of its requests."""
    tenants = (Tenant("big", weight=3.0), Tenant("small", weight=1.0))
    classes = (WorkloadClass("chat", Slo(ttft_s=1e6)),)
    world = hand("slomax", PLAIN, replicas=1, classes=classes, tenants=tenants, max_seqs=1)
    tokens = {"big": 1000, "small": 250}
    for i in range(1200):
        name = "big" if i % 5 == 0 else "small"
        world.offer(world.request(i, "chat", tokens[name], tenant=name), 0.0)
    work: Counter[str] = Counter()
    for step in range(300):
        last = world.running[0]
        name = "big" if last % 5 == 0 else "small"
        work[name] += tokens[name] + 400  # decode price 4 for 100 expected tokens
        world.first_token(last, step * 0.01)
        world.finish(last, step * 0.01)
    assert work["big"] / work["small"] == pytest.approx(3.0, rel=0.1)


def test_a_guarantee_goes_first_until_it_is_used_up(hand: Any) -> None:
    promise = (Reservation("m@1", tokens_per_s=100.0, workload_class="batch"),)
    tenants = (Tenant("sure", tier="guaranteed", reservations=promise), Tenant("t"))
    world = hand("slomax", {"guarantee_burst_s": 2.0, "demote": False}, replicas=1, tenants=tenants, max_seqs=1)
    world.offer(world.request(0), 0.0)
    for i in range(1, 6):
        world.offer(world.request(i), 0.0)
    for i in range(10, 16):
        world.offer(world.request(i, "batch", tenant="sure"), 0.0)
    order = []
    for _ in range(5):
        last = world.running[0]
        world.first_token(last, 0.01)
        world.finish(last, 0.01)
        order.append(world.running[0])
    # 200 tokens of burst at 100 expected each: two of the promised batch, then the tighter class.
    assert order == [10, 11, 1, 2, 3]


def test_a_class_beyond_its_quota_waits_for_those_within_theirs(hand: Any) -> None:
    world = hand("slomax", {"demote": False, "floor_share": 0.0}, replicas=1, max_seqs=1)
    world.flow.set_quotas({("m@1", "interactive"): 10.0, ("m@1", "batch"): 1000.0}, 0.0)
    for i in range(4):
        world.offer(world.request(i), 0.0)
    for i in range(10, 13):
        world.offer(world.request(i, "batch"), 0.0)
    order = [world.running[0]]
    while world.waiting():
        last = world.running[0]
        world.first_token(last, 0.0)
        world.finish(last, 0.0)
        order.append(world.running[0])
    # The first one takes interactive's bucket (50 tokens) into debt; batch goes, then interactive borrows.
    assert order == [0, 10, 11, 12, 1, 2, 3]


def test_waiting_requests_survive_a_new_split(hand: Any) -> None:
    world = hand("slomax", {}, replicas=1, max_seqs=1)
    for i in range(5):
        world.offer(world.request(i, "batch"), 0.0)
    before = world.flow.status(0.0).queues
    world.flow.set_quotas({("m@1", "batch"): 5.0}, 0.0)
    world.flow.set_quotas({}, 0.0)
    assert world.flow.status(0.0).queues == before


def test_the_hopeless_wait_behind_all_that_can_make_it(hand: Any) -> None:
    world = hand("slomax", {"floor_share": 0.0}, replicas=1, max_seqs=1)
    world.offer(world.request(0), 0.0)
    world.offer(world.request(1), 0.0)
    world.offer(world.request(2, "batch"), 0.0)
    world.offer(world.request(3), 4.9)
    world.first_token(0, 5.0)
    world.finish(0, 5.0)
    assert world.running == [3]
    assert [queue.workload_class for queue in world.flow.status(5.0).queues] == ["batch", "(late)"]
    world.first_token(3, 5.0)
    world.finish(3, 5.0)
    assert world.running == [2]
    world.first_token(2, 5.0)
    world.finish(2, 5.0)
    assert world.running == [1]


def test_a_class_that_refuses_the_late_turns_them_away_early(hand: Any) -> None:
    classes = (WorkloadClass("interactive", Slo(ttft_s=1.0, tpot_s=0.05), when_late="refuse"),)
    tenants = (Tenant("t"), Tenant("top", tier="guaranteed"))
    world = hand("slomax", {"pace": False, "shed": False}, replicas=1, classes=classes, tenants=tenants)
    verdicts = [world.offer(world.request(i, tokens=2000), 0.0) for i in range(20)]
    kinds = [type(one).__name__ for one in verdicts]
    # 0.2 s of prefill each: some go at once, some wait, and those that would wait more than a second do not.
    assert kinds == sorted(kinds)
    refused = [one for one in verdicts if isinstance(one, Refused)]
    assert refused
    assert {one.reason for one in refused} == {RefusalReason.OVERLOADED}
    assert {one.status for one in refused} == {429}
    assert all(one.retry_after_s >= 1.0 for one in refused)
    world.pump(5.0)  # and those that waited in vain are dropped, not sent
    assert world.waiting() == 0
    assert {reason for _, reason in world.dropped} == {RefusalReason.OVERLOADED}


def test_a_request_without_any_endpoint_is_told_why(hand: Any) -> None:
    world = hand()
    world.open = world.open[:0]
    verdict = world.offer(world.request(0), 0.0)
    assert isinstance(verdict, Refused)
    assert (verdict.reason, verdict.status) == (RefusalReason.NO_ENDPOINT, 503)


@pytest.mark.parametrize("flow", FLOWS)
def test_an_unknown_class_is_refused_by_every_flow_control(hand: Any, flow: str) -> None:
    world = hand(flow)
    verdict = world.offer(world.request(0, workload_class="made up"), 0.0)
    assert isinstance(verdict, Refused)
    assert (verdict.reason, verdict.status) == (RefusalReason.UNKNOWN_CLASS, 400)


def test_origins_that_callers_make_up_do_not_fill_the_memory(hand: Any) -> None:
    world = hand("slomax", {}, replicas=1, max_seqs=1)
    world.offer(world.request(0), 0.0)
    for i in range(1, 2 * MOST_FLOWS):
        verdict = world.offer(world.request(i, origin=f"origin {i}"), 0.0)
        assert isinstance(verdict, Queued)
        world.flow.cancel(verdict.ticket, 0.0)
    queue = world.flow._queues.queue("m@1", "interactive")
    assert len(queue._flows) <= MOST_FLOWS


def test_failures_release_what_they_held(hand: Any) -> None:
    world = hand("slomax", {}, replicas=1, tenants=(Tenant("t", concurrent_budget=3),))
    for i, status in enumerate((Status.FAILED, Status.CANCELLED, Status.CLIENT_ERROR, Status.COMPLETED)):
        assert isinstance(world.offer(world.request(i), 0.0), Admitted)
        world.finish(i, 0.0, status)
    assert world.flow.status(0.0).budgets[0].in_flight == 0


@pytest.mark.parametrize(
    ("tier", "shed", "refused"), [("standard", True, 0.5), ("guaranteed", True, 0.0), ("standard", False, 0.0)]
)
def test_those_with_half_a_chance_are_shed_by_half(hand: Any, tier: Any, shed: bool, refused: float) -> None:
    """Nobody is drawn for in the guaranteed tier, nor without the setting; the same seed draws the same."""
    kinds = (WorkloadClass("chat", Slo(ttft_s=0.5), when_late="refuse"),)
    tenants = (Tenant("t", tier=tier),)
    verdicts = []
    for _ in range(2):
        world = hand("slomax", {"shed": shed, "pace": False}, replicas=1, classes=kinds, tenants=tenants)
        world.table.inflight[0] = world.table.max_seqs[0]  # idle but full: its own prefill is all that it takes
        found = []
        for number in range(400):
            verdict = world.offer(world.request(number, "chat", tokens=4850), 0.0)
            found.append(isinstance(verdict, Refused))
            if isinstance(verdict, Queued):
                assert world.flow.cancel(verdict.ticket, 0.0)
        verdicts.append(found)
    assert verdicts[0] == verdicts[1]
    assert sum(verdicts[0]) / 400 == pytest.approx(refused, abs=0.08 if refused else 0.0)
