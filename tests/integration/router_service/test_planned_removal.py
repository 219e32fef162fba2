"""A plan with fewer replicas: those that go end what they have, and get nothing new."""

from __future__ import annotations

from typing import Any

from data.plan import PlanDocument, PlannedReplicas, PlanStatus
from data.types import Status
from router.pb.v1 import router_pb2 as pb

AT = "2026-01-01T00:00:00Z"


def plan_of(replicas: int) -> PlanDocument:
    rows = (PlannedReplicas("B", "c", "m@1", "H100", 1, replicas),)
    return PlanDocument("p", None, AT, AT, AT, "test", {}, PlanStatus.OPTIMAL, 1.0, 1.0, 1.0, "b", rows)


def test_streams_on_replicas_that_go_end_well_and_no_new_one_comes_f108(world: Any) -> None:
    """F108: scaling down while eight answers are under way: none fails, and new work goes to what stays."""
    streams = [world.ask() for _ in range(8)]
    for reply in streams:
        assert world.tell(reply.placement.lease_id, first_token=pb.FirstToken()) == "accepted"
    world.live.apply_plan(plan_of(2))
    stays = {"B/c/0", "B/c/1"}
    going = [reply for reply in streams if reply.placement.endpoint_id not in stays]
    assert len(going) == 4
    for _ in range(20):
        reply = world.ask()
        assert reply.placement.endpoint_id in stays
        world.tell(reply.placement.lease_id, finished=pb.Finished(output_tokens=5))
    world.clock.now_s += 50.0
    for reply in streams:
        done = pb.Finished(output_tokens=190)
        assert world.tell(reply.placement.lease_id, finished=done) == "accepted"
    assert {row["status"] for row in world.sink.outcomes} == {int(Status.COMPLETED)}
    assert world.counts() == 0
    world.live.apply_plan(plan_of(4))
    assert len({world.ask().placement.endpoint_id for _ in range(40)}) == 4, "a drain that is taken back"
