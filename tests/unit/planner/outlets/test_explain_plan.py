"""A plan in sentences."""

from __future__ import annotations

from data.plan import Move, PlanDocument, PlannedReplicas, PlanStatus, UnmetDemand
from planner.outlets.explain_plan import STATUS, explain_plan


def test_a_plan_tells_what_it_breaks_first_and_what_moves_cost_f097_f117() -> None:
    """F097, F117: broken promises and their reasons stand before the moves; nothing is only a number."""
    plan = PlanDocument(
        "plan-1", None, "t", "t", "t", "f", {}, PlanStatus.INFEASIBLE, 90.0, 1234.5, 100.0, "linked LP",
        (PlannedReplicas("B", "chat-h100", "chat@v1", "H100", 2, 3),),
        unmet=(
            UnmetDemand("notice", "", "", "", 0.0, "", "site C is frozen"),
            UnmetDemand("demand", "chat@v1", "batch", "night", 120.0, "tokens/s", "1 site: slo"),
            UnmetDemand("reservation", "big@v1", "", "acme", 1.0, "replicas", "needs 8 GPUs in eu, 4 available"),
        ),
        moves=(
            Move("B", "chat-h100", 2, 5400.0, "carries interactive 900 tokens/s"),
            Move("C", "chat-h100", -1, 0.0, "costs nothing to stop"),
        ),
    )  # fmt: skip
    lines = explain_plan(plan)
    assert [line.about for line in lines] == ["plan", "plan", "promise", "demand", "move", "move", "notice"]
    text = [line.text for line in lines]
    assert text[1] == "3 replicas on 6 GPUs, 1,234 output tokens/s expected"
    assert text[2] == "reservation of acme / big@v1: 1 replicas missing; needs 8 GPUs in eu, 4 available"
    assert text[4].endswith("carries interactive 900 tokens/s; costs 5,400 value-weighted tokens")
    assert text[5] == "drain 1 of chat-h100 at C: costs nothing to stop"
    assert text[6] == "site C is frozen"


def test_every_status_has_a_sentence_and_only_a_proof_is_called_one_f083() -> None:
    """F083: a limit that ended the search is told as such."""
    assert set(STATUS) == set(PlanStatus)
    assert "limit ended the search" in STATUS[PlanStatus.FEASIBLE_LIMIT]
