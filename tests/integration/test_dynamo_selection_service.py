"""Dynamo's real selection service behind the pipe: what it is told bears on its next choice; its rule is ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks.proof.dynamo_arm.child import PROGRAM, Child, dynamo_child, interpreter
from benchmarks.proof.dynamo_arm.messages import (
    Asked,
    Cleared,
    Ended,
    Notice,
    Opening,
    Prefilled,
    Removed,
    Stored,
    Worker,
)
from benchmarks.proof.dynamo_arm.scenario import with_dynamo
from data.fleet.reference import reference_fleet
from data.synth.profiles import PROFILES
from planner.arm import Arm
from planner.fleet_streams import fleet_streams
from planner.scenario import Scenario
from planner.sim.settings import FailureEvent, SimSettings
from planner.trace_source import Shaped, SynthTrace

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(interpreter() is None, reason=f"{PROGRAM} names no interpreter with ai-dynamo-runtime"),
]
BLOCK = 512
PROMPT = [2**64 - 1, 12, 13]
"""An id of 64 bits among them."""


@pytest.fixture
def child() -> Iterator[Child]:
    workers = [Worker(row, "other" if row == 3 else "m", 100_000, 8192) for row in range(4)]
    with dynamo_child(interpreter() or "", scale=1.0) as opened:
        opened.open(Opening(workers, block_tokens=64, parts=8))
        yield opened


def place(
    child: Child,
    name: str,
    *notices: Notice,
    blocks: list[int] = PROMPT,
    tokens: int = 3 * BLOCK,
    allowed: tuple[int, ...] = (0, 1, 2),
    model: str = "m",
) -> int:
    """The worker chosen; the booking stays."""
    return child.turn(notices, Asked(name, model, blocks, tokens, list(allowed))).worker


def test_events_are_seen_by_the_next_choice(child: Child) -> None:
    """Two hold the start of a prompt, one of them all of it in the end, with a little load against it."""
    over: list[Notice] = []
    for turn in range(20):
        holder, other = turn % 3, (turn + 1) % 3
        place(child, "load", *over, blocks=[], tokens=64, allowed=(holder,))
        start = [Stored(row, PROMPT[:2], None) for row in (holder, other)]
        assert place(child, "a", *start) == other
        assert place(child, "b", Ended("a"), Stored(holder, PROMPT[2:], PROMPT[1])) == holder
        gone = Removed(holder, PROMPT[:0:-1]) if turn % 2 else Cleared(holder)
        assert place(child, "c", Ended("b"), gone) == other
        over = [Ended("c"), Ended("load"), Cleared(other), Cleared(holder)]


def test_bookings_weigh_until_they_end_and_prefills_until_the_first_token(child: Child) -> None:
    assert place(child, "long", blocks=[], tokens=8000, allowed=(0,)) == 0
    assert place(child, "short", blocks=[], tokens=1000, allowed=(1,)) == 1
    # 125 + 125 blocks of the long one against 15.6 + 15 of the short one.
    assert place(child, "a", blocks=[], tokens=64, allowed=(0, 1)) == 1
    # Its prefill is over: 125 against 15.6 + 15, 2 of "a" and what "b" and "c" add.
    assert place(child, "b", Prefilled("long"), blocks=[], tokens=4000, allowed=(1,)) == 1
    assert place(child, "c", blocks=[], tokens=64, allowed=(0, 1)) == 0
    assert place(child, "d", Ended("long"), Ended("c"), blocks=[], tokens=64, allowed=(0, 1)) == 0


def test_filters_and_models_bound_the_choice(child: Child) -> None:
    assert place(child, "a", Stored(2, PROMPT, None), allowed=(0, 1)) in (0, 1)
    assert place(child, "b", allowed=(0, 2)) == 2
    assert place(child, "c", model="other", allowed=(3,)) == 3


def test_a_call_that_makes_no_sense_is_told_and_ends_the_child(child: Child) -> None:
    with pytest.raises(RuntimeError, match="gave up: SelectionServiceError"):
        place(child, "a", Ended("never booked"))
    assert child.close() != 0


@pytest.mark.parametrize(("profile", "scale"), [("conversation", 1.0), ("conversation", 16.0), ("chat", 4.0)])
def test_the_service_chooses_by_the_rule_as_we_state_it(profile: str, scale: float) -> None:
    """Small memories, so blocks come and go; two engines crash. Every single choice has the least cost."""
    fleet = reference_fleet("mixed-pool")
    model = replace(fleet.models[0], engine=replace(fleet.models[0].engine, gpu_memory_utilization=0.45))
    fleet = replace(fleet, models=(model,))
    trace = SynthTrace(fleet_streams(fleet, PROFILES[profile], 4.0), 60.0, profile)
    crashes = (FailureEvent(20.0, 7, "crash", 15.0), FailureEvent(25.0, 8, "crash", 5.0))
    scenario = with_dynamo(Scenario(fleet, Shaped(trace), SimSettings(failures=crashes)), interpreter() or "")
    result = scenario.run(Arm("service", "dynamo_selection", {"scale": scale}), seed=1)
    assert result.total.completed > 150
    assert result.extra["likewise_in_their_blocks"] == 1.0
    assert result.extra["ties"] < 0.5
