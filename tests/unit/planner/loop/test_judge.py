"""What is published, renewed, refused, and taken back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from data.errors import SettingError
from data.plan import PlanDocument, PlanStatus, TrafficShare
from planner.loop.judge import (
    StepVerdict,
    Watch,
    WatchVerdict,
    judge_look,
    judge_step,
    placement_digest,
    watch_after,
)
from planner.loop.service_level import ServiceLevel
from planner.loop.settings import LoopSettings
from planner.loop.shadow import Shadow
from planner.plan_store.entry import Baseline

MakePlan = Callable[..., PlanDocument]
LOOP = LoopSettings()
NONE: frozenset[str] = frozenset()


def shadow(running: float, candidate: float) -> Shadow:
    return Shadow(running, candidate, 100, 60.0, 2, "test")


def test_the_first_plan_is_published_unless_it_is_empty(plan: MakePlan) -> None:
    assert judge_step(plan(2), None, None, NONE, LOOP).verdict is StepVerdict.PUBLISH
    assert judge_step(plan(0), None, None, NONE, LOOP).verdict is StepVerdict.KEEP


def test_the_same_decision_is_renewed_not_moved(plan: MakePlan) -> None:
    again = replace(plan(2), plan_id="another", parent_id="plan-2", solve_s=9.0)
    assert judge_step(again, plan(2), None, NONE, LOOP).verdict is StepVerdict.RENEW


def test_the_solver_that_knew_nothing_better_leaves_what_runs_f087(plan: MakePlan) -> None:
    """F087: unknown at the limit is not infeasible; what runs stays, with no move."""
    share = TrafficShare("chat@v1", "interactive", "acme", "eu-1", "eu-1", 0.9)
    kept = replace(plan(2, PlanStatus.KEPT_LAST), shares=(share,))
    assert judge_step(kept, plan(2), None, NONE, LOOP).verdict is StepVerdict.RENEW


def test_an_infeasible_step_never_scales_to_zero_f097(plan: MakePlan) -> None:
    """F097: broken promises are no reason to switch everything off."""
    verdict = judge_step(plan(0, PlanStatus.INFEASIBLE), plan(2), None, NONE, LOOP)
    assert verdict.verdict is StepVerdict.KEEP
    assert "no replica" in verdict.reason


@pytest.mark.parametrize(
    ("running", "candidate", "verdict"),
    [
        (100.0, 120.0, StepVerdict.PUBLISH),
        (100.0, 98.5, StepVerdict.PUBLISH),
        (100.0, 97.5, StepVerdict.KEEP),
        (0.0, 0.0, StepVerdict.PUBLISH),
    ],
)
def test_a_plan_that_loses_goodput_on_the_last_window_is_refused(
    plan: MakePlan, running: float, candidate: float, verdict: StepVerdict
) -> None:
    judged = judge_step(plan(3), plan(2), shadow(running, candidate), NONE, LOOP)
    assert judged.verdict is verdict


def test_a_placement_that_was_taken_back_is_not_tried_again_at_once_f104(plan: MakePlan) -> None:
    """F104: the loop remembers what went wrong, or it would flap."""
    bad = frozenset({placement_digest(plan(3))})
    assert judge_step(plan(3), plan(2), None, bad, LOOP).verdict is StepVerdict.KEEP
    assert judge_step(plan(4), plan(2), None, bad, LOOP).verdict is StepVerdict.PUBLISH


WATCH = Watch(5, "digest", Baseline(0.9, 1000.0), 1000.0, 2000.0)


def level(share: float, offered: float = 1000.0, requests: float = 500.0, since_s: float = 1100.0) -> ServiceLevel:
    return ServiceLevel(share * offered, offered, requests, since_s, since_s + 100.0)


def test_two_looks_in_a_row_below_the_limit_take_a_plan_back() -> None:
    first = judge_look(WATCH, level(0.7), 1200.0, LOOP)
    assert (first.verdict, first.falls) == (WatchVerdict.GO_ON, 1)
    second = judge_look(replace(WATCH, falls=1), level(0.7), 1260.0, LOOP)
    assert second.verdict is WatchVerdict.ROLL_BACK
    assert "70.0%" in second.reason
    assert "90.0%" in second.reason


@pytest.mark.parametrize(
    ("seen", "falls"),
    [
        (None, 1),
        (level(0.0, requests=3), 1),
        (level(0.1, since_s=900.0), 1),
        (level(0.85), 0),
        (level(0.5, offered=5000.0), 0),
    ],
    ids=["no data", "few requests", "before it settled", "within the limit", "demand rose"],
)
def test_what_is_no_fall_takes_nothing_back(seen: ServiceLevel | None, falls: int) -> None:
    found = judge_look(replace(WATCH, falls=1), seen, 1200.0, LOOP)
    assert (found.verdict, found.falls) == (WatchVerdict.GO_ON, falls)


def test_a_fall_seen_once_at_the_end_is_still_looked_into() -> None:
    assert judge_look(WATCH, level(0.95), 2000.0, LOOP).verdict is WatchVerdict.PASSED
    assert judge_look(WATCH, level(0.2), 2000.0, LOOP).verdict is WatchVerdict.GO_ON


def test_less_traffic_with_the_same_service_is_no_fall() -> None:
    """Goodput in tokens falls with demand; its share of what was offered does not."""
    assert judge_look(WATCH, level(0.9, offered=10.0), 1200.0, LOOP).falls == 0
    assert ServiceLevel(0.0, 0.0, 0.0, 0.0, 1.0).good_share == 1.0


def test_nothing_is_watched_without_a_baseline(plan: MakePlan) -> None:
    assert watch_after(1, plan(1), 0.0, None, LOOP) is None
    assert watch_after(1, plan(1), 0.0, Baseline(0.9, 1.0), replace(LOOP, watch_s=0.0)) is None
    made = watch_after(1, plan(1), 50.0, Baseline(0.9, 1.0), LOOP)
    assert made is not None
    assert (made.from_s, made.until_s) == (50.0 + LOOP.settle_s, 50.0 + LOOP.settle_s + LOOP.watch_s)


@pytest.mark.parametrize(
    "wrong",
    [
        {"step_deadline_s": 0},
        {"shrink_after_steps": 0},
        {"window_s": 0},
        {"shadow_requests": 1},
        {"shadow_seeds": 0},
        {"shadow_loss": 2},
        {"settle_s": -1},
        {"watch_s": -1},
        {"look_every_s": 0},
        {"fall_limit": 1.5},
        {"falls": 0},
        {"rise_limit": -1},
        {"least_requests": 0},
        {"quarantine_s": -1},
    ],
)
def test_settings_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(wrong))):
        LoopSettings(**wrong)
