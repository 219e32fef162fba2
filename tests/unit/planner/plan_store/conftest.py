"""Small plans to publish."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from data.plan import PlanDocument, PlannedReplicas, PlanStatus

MakePlan = Callable[[int], PlanDocument]


@pytest.fixture
def plan() -> MakePlan:
    """A plan with so many replicas; its id tells how many."""

    def made(replicas: int) -> PlanDocument:
        return PlanDocument(
            plan_id=f"plan-{replicas}",
            parent_id=None,
            made_at="2026-01-01T00:00:00Z",
            valid_from="2026-01-01T00:00:00Z",
            valid_until="2026-01-01T00:15:00Z",
            fleet="small",
            input_digests={},
            status=PlanStatus.OPTIMAL,
            objective=1.0,
            goodput_tokens_per_s=1.0,
            bound=1.0,
            bound_name="test",
            replicas=(PlannedReplicas("eu-1", "chat-h100", "chat@v1", "H100", 1, replicas),),
        )

    return made
