"""A replica leaves by a plan: what runs there ends, nothing new goes there, and who waits goes elsewhere."""

from __future__ import annotations

from typing import Any

from data.plan import PlanDocument, PlannedReplicas, PlanStatus
from data.types import Status
from router.pb.v1 import router_pb2 as pb
from router.slomax.registry import flow_factory


def plan_of(replicas: int) -> PlanDocument:
    planned = (PlannedReplicas("B", "c", "m@1", "H100", 1, replicas),)
    return PlanDocument(
        "p1", None, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "test", {},
        PlanStatus.GREEDY, 0.0, 0.0, 0.0, "none", planned,
    )  # fmt: skip


def test_a_replica_that_leaves_ends_its_streams_and_its_queue_goes_elsewhere_f108(
    make_world: Any, endpoint: Any, asked: Any
) -> None:
    """F108: long streams run to their end and count as completed; the waiting go to the one that stays."""
    world = make_world([endpoint(0), endpoint(1)], flow=flow_factory("slomax", {}))
    live, table = world.live, world.live.core.table
    running = {}
    for number in range(10):
        world.clock.now_s += 0.5
        placed = world.ask(request_id=f"r{number}", input_tokens=50).placement
        running[placed.lease_id] = placed.endpoint_id
        assert world.tell(placed.lease_id, first_token=pb.FirstToken(ttft_s=0.1)) == "accepted"
    leaving = [lease for lease, where in running.items() if where == "B/c/1"]
    assert 0 < len(leaving) < 10
    held = table.inflight.copy()
    table.inflight[:] = table.max_seqs
    got: list[Any] = []
    for number in range(5):
        waits = asked(request_id=f"w{number}", tenant="shop", queue_ttl_s=600.0)
        assert isinstance(live.desk.ask(waits, "", "", None, got.append), int)
    live.apply_plan(plan_of(1))
    assert live.core.table.draining.tolist() == [False, True]
    table.inflight[:] = held
    served = 0
    for _ in range(30):
        world.clock.now_s += 1.0
        live.tick()
        for reply in got[served:]:
            served += 1
            world.tell(reply.placement.lease_id, first_token=pb.FirstToken(ttft_s=0.1))
    assert [reply.placement.endpoint_id for reply in got] == ["B/c/0"] * 5
    assert {world.ask(request_id=f"n{number}").placement.endpoint_id for number in range(10)} <= {"B/c/0", ""}
    for lease in leaving:
        end = pb.Finished(output_tokens=200, ttft_s=0.1, e2e_s=30.0)
        assert world.tell(lease, finished=end) == "accepted"
    assert table.inflight[1] == 0
    assert {row["status"] for row in world.sink.outcomes} == {list(Status).index(Status.COMPLETED)}
