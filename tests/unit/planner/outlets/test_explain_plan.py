"""A plan in sentences."""

from __future__ import annotations

from dataclasses import replace

from data.plan import Move, PlanDocument, PlannedReplicas, PlanStatus, ShadowPrice, UnmetDemand
from planner.outlets.explain_plan import STATUS, explain_plan, move_text, price_text


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


def test_a_move_tells_when_it_begins_what_it_brings_and_what_stops_one_more() -> None:
    start = Move(
        "C", "chat-h200", 2, 1000.0, "carries batch 900 tokens/s", gain=900.0, gives_up=250.0,
        binding=("H200 pool of C (8 GPUs)",), begin_s=(0.0, 36.0), lasts_s=36.0,
    )  # fmt: skip
    assert move_text(start) == (
        "start 2 of chat-h200 at C: carries batch 900 tokens/s; begins after 0 to 36 s, lasts 36 s; "
        "brings 900 value-weighted tokens/s; gives up 250 tokens/s (its GPUs are worth that to others); "
        "costs 1,000 value-weighted tokens; one more is stopped by H200 pool of C (8 GPUs)"
    )
    drain = Move("B", "chat-h100", -1, 0.0, "moves", lost_cache=40.0, gain=300.0, gives_up=20.0, begin_s=(5.0,))
    assert move_text(drain) == (
        "drain 1 of chat-h100 at B: moves; begins after 5 s, lasts 0 s; brings 300 value-weighted tokens/s; "
        "gives up 20 tokens/s (its replicas would still serve that); "
        "costs 40 value-weighted tokens, 40 of them for lost caches"
    )
    assert "begins at once" in move_text(replace(drain, begin_s=(0.0,)))
    assert move_text(Move("B", "c", -1, 0.0, "old")) == "drain 1 of c at B: old"


def test_a_price_is_one_sentence() -> None:
    assert price_text(ShadowPrice("gpus", "C", "H100", 1.0, "GPU", 1200.4, 950.0)) == (
        "one more H100 at C is worth 1,200 value-weighted tokens/s (950 tokens/s)"
    )
    assert price_text(ShadowPrice("ingress", "B", "", 1000.0, "tokens/s", 500.0, 900.0)).startswith(
        "1,000 more tokens/s of ingress at B is worth 500"
    )
    mends = ShadowPrice("power", "B", "", 1.0, "kW", 0.0, 0.0, "0.5 replicas of acme: 2 replicas of m")
    assert price_text(mends).startswith(
        "one more kW of power at B keeps 0.5 replicas of acme: 2 replicas of m, and is"
    )
