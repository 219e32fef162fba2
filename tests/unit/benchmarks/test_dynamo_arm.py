"""The pipe to the selection service and what the simulator sends through it; a strict stand-in is the service."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import bench_dynamo_selection as bench
from benchmarks.proof.contest import SEEDS
from benchmarks.proof.dynamo_arm.chains import Chains
from benchmarks.proof.dynamo_arm.child import PROGRAM, Child
from benchmarks.proof.dynamo_arm.messages import (
    Asked,
    Chosen,
    Ended,
    Fault,
    Message,
    Notice,
    Opening,
    Prefilled,
    Removed,
    Stored,
    Turn,
    Worker,
    from_child,
    from_parent,
    send,
)
from benchmarks.proof.dynamo_arm.policy import DynamoSelection, DynamoSelectionSettings
from benchmarks.proof.dynamo_arm.scenario import run_beside_our_rule
from benchmarks.proof.runs import Cell, RunFile
from data.errors import SettingError
from data.fleet.reference import reference_fleet
from data.synth.profiles import PROFILES
from planner.arm import Arm
from planner.fleet_streams import fleet_streams
from planner.measures import GOODPUT
from planner.scenario import Scenario
from planner.sim.result import RunResult
from planner.sim.settings import FailureEvent, SimSettings
from planner.trace_source import Shaped, SynthTrace

BLOCK = 512
OPENING = Opening([Worker(row, "m", 100_000, 8192) for row in range(3)], block_tokens=64, parts=8)


def stand_in(scale: float = 1.0) -> Child:
    return Child([sys.executable, "-m", "benchmarks.fakes.dynamo_selection", str(scale)])


@pytest.fixture
def child() -> Iterator[Child]:
    with stand_in() as opened:
        opened.open(OPENING)
        yield opened


def asked(name: str, blocks: list[int], tokens: int, allowed: tuple[int, ...] = (0, 1, 2)) -> Asked:
    return Asked(name, "m", blocks, tokens, list(allowed))


@pytest.mark.parametrize(
    "message",
    [
        OPENING,
        Turn(
            [Stored(1, [2**64 - 1, 7], None), Removed(2, [5]), Prefilled("3.0"), Ended("3.0")],
            asked("4.0", [7], 600),
        ),
    ],
)
def test_a_message_to_the_child_arrives_whole_or_not_at_all(message: Message) -> None:
    stream = BytesIO()
    send(stream, message)
    sent = stream.getvalue()
    assert from_parent(BytesIO(sent)) == message
    assert from_parent(BytesIO()) is None
    with pytest.raises(EOFError, match="within a frame"):
        from_parent(BytesIO(sent[:-1]))


def test_answers_keep_their_kind() -> None:
    stream = BytesIO()
    for message in (Chosen(4, 0.5, 0.25), Fault("no")):
        send(stream, message)
    stream.seek(0)
    assert [from_child(stream) for _ in range(2)] == [Chosen(4, 0.5, 0.25), Fault("no")]


def test_what_happened_bears_on_the_next_choice(child: Child) -> None:
    held: list[Notice] = [Stored(2, [11, 12], None)]
    assert child.turn(held, asked("a", [11, 12, 13], 3 * BLOCK)).worker == 2
    # The whole prompt of the first is in its way there, so one that shares nothing goes to the first idle worker.
    assert child.turn([], asked("b", [], 2 * BLOCK)).worker == 0
    gone: list[Notice] = [Prefilled("a"), Ended("a"), Ended("b"), Removed(2, [12, 11])]
    assert child.turn(gone, asked("c", [11, 12, 13], 3 * BLOCK)).worker == 0


def test_only_allowed_workers_are_chosen(child: Child) -> None:
    held: list[Notice] = [Stored(2, [11, 12], None)]
    assert child.turn(held, asked("a", [11, 12], 2 * BLOCK, allowed=(0, 1))).worker == 0


def test_an_error_of_the_selection_reaches_the_caller(child: Child) -> None:
    with pytest.raises(RuntimeError, match="gave up: ValueError: never booked is not booked"):
        child.turn([Ended("never booked")], asked("a", [], 100))


def test_a_child_that_ended_is_reported_with_its_last_words() -> None:
    with (
        Child([sys.executable, "-c", "import sys; sys.exit('no such service')"]) as dead,
        pytest.raises(RuntimeError, match="no such service"),
    ):
        dead.open(OPENING)


def test_a_closed_pipe_ends_the_child() -> None:
    opened = stand_in()
    opened.open(OPENING)
    assert opened.close() == 0


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=8), st.data())
def test_runs_tell_parents_first(paths: list[list[int]], data: st.DataObject) -> None:
    chains, before = Chains(), dict[int, int | None]()
    for path in paths:
        prompt = [hash(tuple(path[: end + 1])) for end in range(len(path))]
        chains.learn(prompt)
        before |= dict(zip(prompt, [None, *prompt[:-1]], strict=True))
    stored = data.draw(st.permutations(sorted(before)))
    told = set[int]()
    for parent, run in chains.runs(stored):
        assert parent is None or parent in told
        for block, ahead in zip(run, [parent, *run[:-1]], strict=True):
            assert before[block] == ahead
        told |= set(run)
    assert told == set(before)


def small(profile: str, settings: SimSettings | None = None) -> Scenario:
    """A short run on small KV memories: blocks are evicted all the time."""
    fleet = reference_fleet("mixed-pool")
    model = replace(fleet.models[0], engine=replace(fleet.models[0].engine, gpu_memory_utilization=0.45))
    fleet = replace(fleet, models=(model,))
    trace = SynthTrace(fleet_streams(fleet, PROFILES[profile], 4.0), 60.0, profile)
    return Scenario(fleet, Shaped(trace), settings or SimSettings())


def run(scenario: Scenario, scale: float, block_tokens: int = 64) -> RunResult:
    settings = DynamoSelectionSettings(scale, block_tokens)
    with stand_in(scale) as opened:
        return run_beside_our_rule(scenario, settings, opened, Arm("a", DynamoSelection.name), seed=1)


@pytest.mark.parametrize("scale", [1.0, 16.0])
def test_a_run_tells_the_child_all_that_our_rule_knows(scale: float) -> None:
    """The stand-in states the rule anew and stops at the first event or call out of order."""
    result = run(small("conversation"), scale)
    assert result.total.completed > 150
    assert result.total.hit_rate > 0.02
    assert result.extra["likewise_in_their_blocks"] == 1.0
    assert 0.9 < result.extra["likewise"] <= 1.0


def test_a_crash_empties_the_child_too() -> None:
    crash = SimSettings(failures=(FailureEvent(20.0, 7, "crash", 15.0), FailureEvent(25.0, 8, "crash", 5.0)))
    result = run(small("conversation", crash), 4.0)
    assert result.total.repeats + result.total.failed > 0
    assert result.extra["likewise_in_their_blocks"] == 1.0


def test_prompts_without_blocks_share_nothing() -> None:
    result = run(small("chat"), 1.0)
    assert result.total.hit_rate == 0.0
    assert result.extra["likewise_in_their_blocks"] == 1.0


def test_blocks_of_the_service_divide_those_of_the_trace() -> None:
    with pytest.raises(SettingError, match="a divisor of 512"):
        run(small("conversation"), 1.0, block_tokens=48)


def test_without_the_service_the_benchmark_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PROGRAM, raising=False)
    (only,) = bench.rows(quick=True)
    assert only["reference"] == f"{PROGRAM} is not set"
    assert only["met"] is None


def test_tokenpilot_stands_against_the_service_at_its_best(tmp_path: Path) -> None:
    cell, runs = Cell("one-pool", "t", small("chat"), 1.0, "85%"), RunFile(tmp_path / "runs.jsonl")
    goodputs = [(bench.service(1.0), 80.0), (bench.service(4.0), 100.0), (bench.PILOT, 110.0)]
    goodputs += [(bench.our_rule(1.0), 80.0), (bench.our_rule(4.0), 99.0)]
    for arm, goodput in goodputs:
        for seed in SEEDS:
            figures = {GOODPUT.key: goodput * seed, "likewise": 0.96, "likewise_in_their_blocks": 1.0}
            runs.keep(cell.key(arm, seed), figures)
    found = {
        row["id"].removeprefix("dynamo_selection/one-pool/t/"): row
        for row in bench.rows_of(cell, [1.0, 4.0], runs)
    }
    assert found["tokenpilot"]["value"] == pytest.approx(0.1)
    assert found["tokenpilot"]["reference"] == "service, scale 4"
    assert found["our_rule/4"]["value"] == pytest.approx(-0.01)
    assert found["likewise/1"]["value"] == pytest.approx(0.96)
