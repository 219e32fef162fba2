"""A router follows a plan's ramp between two versions of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from data.fleet.types import Fleet
from data.plan import PlanDocument, PlannedReplicas, PlanStatus, VersionRamp
from router.serving.fleet_state import FleetSettings
from router.serving.live_build import next_fleet_state

AT = "2026-01-01T00:00:00Z"


def plan_at(share: float) -> PlanDocument:
    ramp = VersionRamp("m", "m@1", "m@2", share, AT, "ramp-1")
    rows = tuple(PlannedReplicas("B", config, f"m@{config[1]}", "H100", 1, 2) for config in ("c1", "c2"))
    return PlanDocument(
        "p", None, AT, AT, AT, "test", {}, PlanStatus.OPTIMAL, 1.0, 1.0, 1.0, "b", rows, ramps=(ramp,)
    )


@pytest.fixture(name="two")
def _two(make_world: Callable[..., Any], endpoint: Callable[..., Any]) -> Any:
    """Two replicas of each version."""
    rows = []
    for number in range(4):
        live, config = endpoint(number), f"c{number // 2 + 1}"
        spec = replace(live.spec, endpoint_id=f"B/{config}/{number}", config=config, model=f"m@{number // 2 + 1}")
        rows.append(replace(live, spec=spec))
    return make_world(rows)


def versions(world: Any, count: int, **fields: Any) -> list[str]:
    """Version of the replica of each of so many requests that name none."""
    found = [world.ask(model="m", **({"session_id": f"s{i}"} | fields)) for i in range(count)]
    return [reply.placement.endpoint_id.split("/")[1] for reply in found]


def test_requests_without_a_version_are_shared_and_named_ones_get_theirs_f116(two: Any) -> None:
    """F116: before a plan with a ramp there is no such model; then its share counts, and goes back to none."""
    assert two.ask(model="m").refusal.reason == "unknown_model"
    two.live.apply_plan(plan_at(0.3))
    found = versions(two, 400)
    assert found.count("c2") / 400 == pytest.approx(0.3, abs=0.07)
    assert len(set(versions(two, 40, session_id="one"))) == 1, "a session stays where it is"
    anonymous = versions(two, 200, session_id="")
    assert 20 < anonymous.count("c2") < 120, "requests without any name are shared too"
    for version in ("1", "2"):
        replies = [two.ask(model=f"m@{version}", session_id=f"s{i}") for i in range(20)]
        assert {reply.placement.endpoint_id.split("/")[1] for reply in replies} == {f"c{version}"}
    two.live.apply_plan(plan_at(0.0))
    assert set(versions(two, 100)) == {"c1"}


def test_a_new_fleet_file_does_not_end_the_ramp(two: Any, fleet: Fleet) -> None:
    two.live.apply_plan(plan_at(1.0))
    state = next_fleet_state(two.live, fleet, "f2", FleetSettings())
    two.live.apply_fleet(state, two.live.rows.endpoints())
    assert set(versions(two, 20)) == {"c2"}
