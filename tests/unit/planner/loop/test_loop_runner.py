"""The loop driven by hand: steps, failures, watching, rolling back, taking over, files that go bad."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data.errors import InputError
from data.plan import PlanDocument
from planner.demand import DemandTable
from planner.loop.loop_parts import LoopParts
from planner.loop.runner import PlannerLoop
from planner.loop.schedule import Schedule
from planner.loop.service_level import ServiceLevel
from planner.loop.settings import LoopSettings
from planner.loop.sources import FileSource
from planner.loop.step import StepJob, StepResult, run_step
from planner.plan_store.entry import EntryKind
from planner.plan_store.layout import Published
from planner.plan_store.store import PlanStore
from planner.settings import PlannerSettings
from planner.work_pool import WorkError

MakePlan = Callable[..., PlanDocument]
MakeDemand = Callable[..., DemandTable]
START_S = 1_800_000_000.0


class Hand:
    """Stands for the clock, the other process and the webhook; everything else is real."""

    def __init__(self, fleet_path: Path, plans: Path, loop: LoopSettings) -> None:
        self.now_s = START_S
        self.next_result: StepResult | Exception | None = None
        self.level: ServiceLevel | None = None
        self.jobs: list[StepJob] = []
        self.told: list[Published] = []
        self.store = PlanStore(plans)
        source = FileSource(fleet_path.parent / "demand.yaml")
        parts = LoopParts(
            fleet_path,
            self.store,
            (source,),
            Schedule(900.0),
            PlannerSettings(),
            loop,
            on_published=self.told.append,
        )
        self.loop = PlannerLoop(parts, lambda: self.now_s, self.apart)

    def apart(self, function: Callable[..., Any], *arguments: Any, **limits: Any) -> Any:
        assert limits["deadline_s"] > 0
        if function is not run_step:
            return self.level
        self.jobs.append(arguments[0])
        if isinstance(self.next_result, Exception):
            raise self.next_result
        return self.next_result

    def step(self, result: StepResult | Exception) -> None:
        self.now_s = max(self.now_s, self.loop.status().next_step_s)
        self.next_result = result
        self.loop.tick()

    def versions(self) -> list[tuple[EntryKind, str]]:
        return [(entry.kind, entry.plan_id) for entry in reversed(self.store.folder.history())]


@pytest.fixture
def hand(fleet_path: Path, tmp_path: Path) -> Hand:
    return Hand(fleet_path, tmp_path / "plans", LoopSettings(settle_s=60.0, watch_s=600.0, look_every_s=30.0))


@pytest.fixture
def made(plan: MakePlan, need: MakeDemand, hand: Hand) -> Callable[..., StepResult]:
    def result(replicas: int, share: float | None = 0.95) -> StepResult:
        level = None if share is None else ServiceLevel(share * 1000, 1000.0, 500.0, hand.now_s - 900, hand.now_s)
        return StepResult(plan(replicas), need(1000.0), level, None)

    return result


Made = Callable[..., StepResult]


def test_unchanged_input_makes_no_move(hand: Hand, made: Made) -> None:
    for _ in range(3):
        hand.step(made(2))
    assert [kind for kind, _ in hand.versions()] == [EntryKind.PUBLISHED, EntryKind.RENEWED, EntryKind.RENEWED]
    assert {plan_id for _, plan_id in hand.versions()} == {"plan-2"}
    assert hand.loop.status().counts == {"publish": 1, "renew": 2}


def test_a_renewed_plan_is_valid_for_longer(hand: Hand, made: Made) -> None:
    hand.step(made(2))
    hand.step(made(2))
    current = hand.store.current()
    assert current is not None
    assert (current.plan.valid_from, current.plan.valid_until) == ("2027-01-15T08:15:00Z", "2027-01-15T08:35:00Z")


@pytest.mark.parametrize("error", [WorkError("not done after 300 s"), InputError("no source answers")])
def test_a_step_that_fails_leaves_the_plan_in_force_f097(hand: Hand, made: Made, error: Exception) -> None:
    """F097, F098: without an answer the last safe plan stays, and it is told."""
    hand.step(made(2))
    hand.step(error)
    status = hand.loop.status()
    assert status.failures == 1
    assert status.last_step is not None
    assert (status.last_step.verdict, str(error) in status.last_step.reason) == ("failed", True)
    assert hand.versions() == [(EntryKind.PUBLISHED, "plan-2")]
    assert status.next_step_s > hand.now_s, "the next step comes on time"
    hand.step(made(3))
    assert hand.loop.status().failures == 0
    assert hand.jobs[-1].recent == (), "what was known before the silence proves no fall after it"


def test_steps_remember_demand_for_as_long_as_a_fall_needs(hand: Hand, made: Made) -> None:
    for _ in range(4):
        hand.step(made(2))
    assert [len(job.recent) for job in hand.jobs] == [0, 1, 2, 2]


def watched(hand: Hand, made: Made) -> None:
    """Two plans, the second one under watch and past its settling."""
    hand.step(made(2))
    hand.step(made(3))
    watch = hand.loop.status().watch
    assert watch is not None
    assert watch.version == 2
    hand.now_s = watch.from_s + 60.0


def seen(hand: Hand, share: float) -> ServiceLevel:
    return ServiceLevel(share * 1000, 1000.0, 500.0, hand.now_s - 30.0, hand.now_s)


def test_a_plan_that_lowers_goodput_is_taken_back_by_itself_f116(hand: Hand, made: Made) -> None:
    """F116: back to the predecessor within one step, without a solve; the report names value and limit."""
    watched(hand, made)
    steps = len(hand.jobs)
    for _ in range(2):
        hand.level = seen(hand, 0.5)
        hand.loop.tick()
        hand.now_s += 30.0
    assert hand.versions()[-1] == (EntryKind.ROLLED_BACK, "plan-2")
    assert len(hand.jobs) == steps
    entry = hand.store.folder.history(most=1)[0]
    assert (entry.restores, "50.0%" in entry.reason) == (1, True)
    assert hand.told[-1].entry == entry
    assert hand.loop.status().watch is None
    hand.step(made(3))
    assert hand.versions()[-1] == (EntryKind.RENEWED, "plan-2"), "the bad placement is in quarantine"
    status = hand.loop.status()
    assert status.last_step is not None
    assert status.last_step.verdict == "keep"
    hand.now_s += LoopSettings().quarantine_s
    hand.step(made(3))
    assert hand.versions()[-1] == (EntryKind.PUBLISHED, "plan-3")


def test_a_plan_that_serves_well_passes_its_watch(hand: Hand, made: Made) -> None:
    watched(hand, made)
    watch = hand.loop.status().watch
    assert watch is not None
    hand.loop.parts.schedule.next_s(hand.now_s)
    hand.now_s = watch.until_s
    hand.level, hand.next_result = seen(hand, 0.94), made(3)
    hand.loop.tick()
    assert hand.loop.status().watch is None
    assert EntryKind.ROLLED_BACK not in {kind for kind, _ in hand.versions()}


def test_a_watch_outlives_a_restart_of_the_planner(hand: Hand, made: Made, fleet_path: Path) -> None:
    watched(hand, made)
    hand.store.leader.close()
    again = Hand(fleet_path, hand.store.folder.root, hand.loop.parts.loop)
    again.now_s = hand.now_s
    again.level, again.next_result = seen(again, 0.4), InputError("still silent")
    for _ in range(2):
        again.loop.tick()
        again.now_s += 30.0
    assert again.versions()[-1] == (EntryKind.ROLLED_BACK, "plan-2")


def test_a_first_plan_has_nothing_to_go_back_to(hand: Hand, made: Made) -> None:
    hand.step(made(2))
    watch = hand.loop.status().watch
    assert watch is not None
    for _ in range(3):
        hand.now_s = max(hand.now_s, watch.from_s) + 40.0
        hand.level = seen(hand, 0.1)
        hand.loop.tick()
    assert hand.loop.status().watch is None
    assert hand.versions() == [(EntryKind.PUBLISHED, "plan-2")]


def test_without_data_on_goodput_nothing_is_watched_or_taken_back(hand: Hand, made: Made) -> None:
    hand.step(made(2, None))
    hand.step(made(3, None))
    assert hand.loop.status().watch is None


def test_a_second_planner_stands_by_and_takes_over(hand: Hand, made: Made, fleet_path: Path) -> None:
    hand.step(made(2))
    other = Hand(fleet_path, hand.store.folder.root, LoopSettings())
    other.now_s = hand.now_s
    other.next_result = made(5)
    wake_s = other.loop.tick()
    assert not other.loop.status().leads
    assert other.jobs == [], "it does not even plan"
    assert other.now_s < wake_s <= other.now_s + other.store.leader.lease_s
    hand.loop.stop()
    hand.loop.run()
    other.loop.tick()
    assert other.loop.status().epoch == 2
    assert other.versions()[-1] == (EntryKind.PUBLISHED, "plan-5")


def test_a_plan_made_for_what_is_no_longer_in_force_is_not_published(hand: Hand, made: Made) -> None:
    hand.step(made(2))
    hand.step(made(3))

    def meanwhile(function: Callable[..., Any], *arguments: Any, **limits: Any) -> Any:
        if function is run_step:
            hand.loop.roll_back("by hand")
            return made(4)
        return None

    hand.loop._apart = meanwhile
    hand.step(made(4))
    status = hand.loop.status()
    assert status.last_step is not None
    assert "changed during the step" in status.last_step.reason
    assert hand.versions()[-1] == (EntryKind.ROLLED_BACK, "plan-2")


def test_a_bad_fleet_file_leaves_the_old_fleet_and_is_told_f129(hand: Hand, made: Made, fleet_path: Path) -> None:
    """F129: parse, validate, swap, or nothing; F130: an unknown key comes with the nearest valid name."""
    hand.step(made(2))
    good = fleet_path.read_text()
    fleet_path.write_text(good.replace("count: 6", "count: -4").replace("zone: eu", "zoen: eu"))
    hand.step(made(2))
    status = hand.loop.status()
    assert len(status.fleet.errors) >= 2
    assert any("zone" in line for line in status.fleet.errors)
    assert hand.jobs[-1].fleet.pools[0].count == 6
    fleet_path.write_text(good.replace("count: 6", "count: 9"))
    hand.step(made(2))
    assert hand.loop.status().fleet.errors == ()
    assert hand.jobs[-1].fleet.pools[0].count == 9


def test_trouble_with_the_store_does_not_end_the_loop(hand: Hand, made: Made) -> None:
    hand.next_result = made(2)
    (hand.store.folder.root / "LEADER").write_text("{")
    ticks = 0

    def stop_after_two() -> float:
        nonlocal ticks
        ticks += 1
        if ticks == 3:
            hand.loop.stop()
        # Time flies whenever the loop looks at the clock, so that it never really waits.
        hand.now_s += 100.0
        return hand.now_s

    hand.loop._clock = stop_after_two
    hand.loop.run()
    assert "LEADER" in hand.loop.status().trouble


def test_an_order_to_step_is_due_at_once(hand: Hand, made: Made) -> None:
    hand.step(made(2))
    hand.loop.step_soon()
    hand.next_result = made(3)
    hand.loop.tick()
    assert hand.versions()[-1] == (EntryKind.PUBLISHED, "plan-3")


def test_a_clock_that_is_set_back_delays_neither_steps_nor_looks(hand: Hand, made: Made) -> None:
    """A plan that does harm is taken back as soon as ever, and steps keep their rhythm on the new clock."""
    hand.step(made(2))
    hand.step(made(3))
    watch = hand.loop.status().watch
    assert watch is not None
    hand.now_s -= 86_400.0
    hand.loop.tick()
    assert hand.loop.status().next_step_s <= hand.now_s + 900.0
    hand.level = ServiceLevel(100.0, 1000.0, 500.0, hand.now_s + 60.0, hand.now_s + 200.0)
    for seconds in (95.0, 40.0):
        hand.now_s += seconds
        hand.loop.tick()
    assert hand.versions()[-1] == (EntryKind.ROLLED_BACK, "plan-2")


def test_a_step_longer_than_its_interval_is_followed_by_one_step_not_by_all_that_were_missed(
    hand: Hand, made: Made
) -> None:
    """Steps never overlap: they share one thread; the rhythm comes back after the late one."""
    plain = hand.apart

    def slow(function: Callable[..., Any], *arguments: Any, **limits: Any) -> Any:
        result = plain(function, *arguments, **limits)
        if len(hand.jobs) == 1:
            hand.now_s += 3000.0
        return result

    hand.loop._apart = slow
    hand.step(made(2))
    for _ in range(5):
        hand.loop.tick()
    assert [job.now_s for job in hand.jobs] == [START_S, START_S + 3000.0]
    assert hand.loop.status().next_step_s == START_S + 3600.0
