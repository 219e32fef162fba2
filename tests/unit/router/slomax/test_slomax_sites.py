"""One queue for each model and class over several sites: nobody waits for endpoints that are not its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data.fleet.types import Tenant, WorkloadClass
from data.types import RefusalReason, Slo
from router.slomax.reaches import ANY, MOST, Reaches
from router.slomax.types import Admitted, Queued, Refused

Make = Callable[..., Any]
NEAR, FAR = np.array([0, 1]), np.array([2, 3])
BOTH = np.arange(4)
PATIENT = (WorkloadClass("chat", Slo(ttft_s=1000.0)),)
QUIET = {"pace": False, "reserve": 0.0, "long_prefill_s": 100.0}


def fill(world: Any, rows: np.ndarray) -> None:
    """These engines are full."""
    world.table.inflight[rows] = world.table.max_seqs[rows]


@pytest.mark.parametrize("kind", ["tenant", "origin", "length"])
def test_a_full_site_holds_back_none_who_may_go_elsewhere(hand: Make, kind: str) -> None:
    """Also not one of the same tenant and origin, whose first request fits an engine of the full site alone."""
    world = hand("slomax", QUIET, replicas=4, classes=PATIENT, tenants=(Tenant("t"), Tenant("u")))
    fill(world, FAR)
    for number in range(50):
        world.only[number] = FAR
        assert isinstance(world.offer(world.request(number, "chat"), 0.0), Queued)
    own = {"tenant": {"tenant": "u"}, "origin": {"origin": "Z"}, "length": {}}[kind]
    world.only[100] = NEAR if kind == "tenant" else BOTH
    verdict = world.offer(world.request(100, "chat", **own), 0.0)
    assert isinstance(verdict, Admitted | Queued)
    assert [request for _, request, _ in world.sent] == [100]
    assert world.sent[0][2] in (0, 1)
    world.table.inflight[FAR] = 0
    world.pump(1.0)
    assert len(world.sent) > 1  # and those who waited go when theirs is open


def test_the_queue_of_another_site_refuses_nobody(hand: Make) -> None:
    """Bounds and early refusal go by the wait for the request's own endpoints."""
    classes = (WorkloadClass("chat", Slo(ttft_s=2.0), when_late="refuse"),)
    world = hand("slomax", QUIET | {"queue_wait_s": 5.0}, replicas=4, classes=classes, max_seqs=1)
    fill(world, BOTH)
    for number in range(200):
        world.only[number] = FAR
        world.offer(world.request(number, "chat", tokens=4000), 0.0)
    assert world.waiting() > 3
    world.only[300] = world.only[301] = NEAR
    verdict = world.offer(world.request(300, "chat", tokens=4000), 0.0)
    assert isinstance(verdict, Queued)
    assert verdict.expected_wait_s == 0.0
    again = world.offer(world.request(301, "chat", tokens=4000), 0.0)
    assert isinstance(again, Queued)
    assert again.expected_wait_s == pytest.approx(0.4 / 2)  # behind the one before it, on two engines
    world.only[302] = FAR
    refused = world.offer(world.request(302, "chat", tokens=4000), 0.0)
    assert isinstance(refused, Refused)
    assert refused.reason is RefusalReason.OVERLOADED


def test_being_able_to_go_to_more_places_gives_no_larger_share(hand: Make) -> None:
    """Tenant t waits in two parts for the one engine that both parts and tenant u may use: shares stay even."""
    tenants = (Tenant("t"), Tenant("u"))
    world = hand("slomax", QUIET, replicas=3, classes=PATIENT, tenants=tenants, max_seqs=1)
    fill(world, np.arange(3))
    for number in range(90):
        world.only[number] = (np.array([0]), np.array([0, 1]), np.array([0]))[number % 3]
        tenant = "u" if number % 3 == 2 else "t"
        assert isinstance(world.offer(world.request(number, "chat", tenant=tenant), 0.0), Queued)
    for step in range(1, 41):
        world.table.inflight[0] = 0
        world.pump(float(step))
    mine = [number % 3 != 2 for _, number, _ in world.sent]
    assert len(mine) == 40
    assert sum(mine) == 20


Places = st.sets(st.integers(0, 3), min_size=1).map(lambda rows: np.array(sorted(rows)))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    asked=st.lists(st.tuples(Places, st.sampled_from("tu"), st.sampled_from("AB")), min_size=1, max_size=25),
    freed=st.lists(st.integers(0, 3), max_size=12),
)
def test_no_engine_stands_idle_while_one_waits_that_may_use_it(
    hand: Make, asked: list[Any], freed: list[int]
) -> None:
    """Whatever waits where: after each event every engine with nothing in flight is closed to all that wait."""
    world = hand("slomax", QUIET, 4, PATIENT, (Tenant("t"), Tenant("u")), max_seqs=1)
    fill(world, BOTH)
    for number, (rows, tenant, origin) in enumerate(asked):
        world.only[number] = rows
        world.offer(world.request(number, "chat", tenant=tenant, origin=origin), 0.0)
    for step, row in enumerate(freed, 1):
        mine = [one for one in world.running if world._leases[one][1] == row]
        for one in mine:
            world.finish(one, float(step))
        world.table.inflight[row] = 0
        world.pump(float(step))
        waiting = set(range(len(asked))) - {number for _, number, _ in world.sent}
        idle = {int(one) for one in np.flatnonzero(world.table.inflight == 0)}
        assert not any(idle & set(world.only[number].tolist()) for number in waiting)
    ahead = world.flow._queues.ahead_s("m@1", 9)
    by_reach = [queue.prefill_by_reach for queue in world.flow._queues.all()]
    assert sum(sum(one.values()) for one in by_reach) == pytest.approx(ahead, abs=1e-6)


def test_sets_of_endpoints_meet_when_they_share_one() -> None:
    reaches = Reaches()
    near, far, all_ = (reaches.number(rows) for rows in (NEAR, FAR, BOTH))
    assert len({near, far, all_, ANY}) == 4
    assert reaches.number(NEAR.copy()) == near
    assert not reaches.meet(near, far)
    assert reaches.meet(near, all_)
    assert reaches.meet(all_, far)
    assert reaches.meet(ANY, far)
    for number in range(2 * MOST):
        reaches.number(np.array([number + 10]))
    assert reaches.meet(near, far)  # forgotten: better to count too much than to overlook
    assert not reaches.meet(reaches.number(NEAR), reaches.number(FAR))


@pytest.mark.parametrize(("owed", "share"), [(1.0, 20), (3.0, 30)])
def test_a_tenant_that_is_owed_something_gets_more_of_its_class(hand: Make, owed: float, share: int) -> None:
    """The debt of a tenant weighs in the queue, also of one that has waited through another fleet file."""
    world = hand("slomax", QUIET, replicas=1, classes=PATIENT, tenants=(Tenant("t"), Tenant("u")), max_seqs=1)
    world.flow.set_debts(lambda kind, tenant: owed if (kind, tenant) == ("chat", "t") else 1.0)
    world.flow.set_fleet(world.fleet, 0.0, lambda request: request)
    fill(world, np.array([0]))
    for number in range(100):
        world.offer(world.request(number, "chat", tenant="tu"[number % 2]), 0.0)
    for step in range(1, 41):
        world.table.inflight[0] = 0
        world.pump(float(step))
    assert len(world.sent) == 40
    assert abs(sum(number % 2 == 0 for _, number, _ in world.sent) - share) <= 1
