"""Whatever happens to the loop, and in whatever order, a whole plan stays in force and history only grows."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from data.errors import InputError
from data.plan import PlanDocument, PlannedReplicas, PlanStatus
from planner.demand import DemandRow, demand_table, spread_quantiles
from planner.loop.loop_parts import LoopParts
from planner.loop.runner import PlannerLoop
from planner.loop.schedule import Schedule
from planner.loop.service_level import ServiceLevel
from planner.loop.settings import LoopSettings
from planner.loop.shadow import Shadow
from planner.loop.sources import FileSource
from planner.loop.step import StepResult, run_step
from planner.plan_store.entry import EntryKind
from planner.plan_store.store import PlanStore
from planner.settings import PlannerSettings

FLEET = """
name: small
sites: [{name: eu-1, role: compute, zone: eu}]
gpu_pools: [{site: eu-1, gpu_type: H100, count: 6}]
models: [{name: chat, version: v1, catalog: llama-3.1-8b, context_limit_tokens: 32768}]
configs: [{name: chat-h100, model: chat@v1, gpu_type: H100, tensor_parallel: 1}]
classes: [{name: interactive, slo: {ttft_s: 1.0}, expected_input_tokens: 1500, expected_output_tokens: 250}]
tenants: [{name: acme}]
"""
KEY = ("chat@v1", "interactive", "acme", "eu-1")
LOOP = LoopSettings(settle_s=100.0, watch_s=1000.0, look_every_s=100.0, falls=1)

steps = st.tuples(st.just("step"), st.integers(0, 4), st.sampled_from([None, 0.0, 0.1]), st.floats(0, 1))
events = st.one_of(
    steps,
    steps,
    st.just(("fail",)),
    st.tuples(st.just("look"), st.floats(0, 1)),
    st.just(("silence",)),
    st.just(("roll back",)),
    st.just(("restart",)),
    st.just(("kill",)),
)


def a_plan(replicas: int) -> PlanDocument:
    rows = (PlannedReplicas("eu-1", "chat-h100", "chat@v1", "H100", 1, replicas),)
    at = "2026-01-01T00:00:00Z"
    return PlanDocument(
        f"plan-{replicas}", None, at, at, at, "small", {}, PlanStatus.OPTIMAL, 1.0, 1.0, 1.0, "test", rows
    )


class World:
    """A loop on a folder, with everything outside it played by events."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now_s = folder, 1_800_000_000.0
        (folder / "fleet.yaml").write_text(FLEET)
        self.answer: Any = InputError("nothing yet")
        self.level: ServiceLevel | None = None
        self.loop = self.started()

    def started(self) -> PlannerLoop:
        source = FileSource(self.folder / "demand.yaml")
        store = PlanStore(self.folder / "plans")
        parts = LoopParts(self.folder / "fleet.yaml", store, (source,), Schedule(900.0), PlannerSettings(), LOOP)
        return PlannerLoop(parts, lambda: self.now_s, self.apart)

    def apart(self, function: Any, *arguments: Any, **limits: Any) -> Any:
        if function is not run_step:
            return self.level
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def happen(self, event: tuple[Any, ...]) -> None:
        self.now_s += 150.0
        self.level = None
        if event[0] == "step":
            _, replicas, loss, share = event
            shadow = None if loss is None else Shadow(100.0, 100.0 * (1 - loss), 10, 1.0, 1, "test")
            demand = demand_table([DemandRow(*KEY, spread_quantiles(10.0, 0.2))])
            self.answer = StepResult(a_plan(replicas), demand, self.seen(share), shadow)
            self.loop.step_soon()
        elif event[0] == "fail":
            self.answer = InputError("no source answers")
            self.loop.step_soon()
        elif event[0] == "look":
            self.level = self.seen(event[1])
        elif event[0] == "roll back" and self.loop.parts.store.before_current() is not None:
            self.loop.roll_back("by hand")
        elif event[0] in ("restart", "kill"):
            # A killed planner frees its lock without a word; one that is told to stop does the same in order.
            self.loop.parts.store.leader.close()
            self.answer = InputError("not asked yet")
            self.loop = self.started()
        self.loop.tick()

    def seen(self, share: float) -> ServiceLevel:
        return ServiceLevel(share * 100.0, 100.0, 500.0, self.now_s - 40.0, self.now_s)


@given(st.lists(events, max_size=14))
@settings(max_examples=40, deadline=None)
def test_a_whole_plan_stays_in_force_whatever_happens(happened: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        world = World(Path(name))
        known: dict[int, str] = {}
        for event in happened:
            before = world.loop.parts.store.current()
            world.happen(event)
            store = world.loop.parts.store
            current = store.current()
            if before is not None:
                assert current is not None, "a plan in force never goes away"
                assert before.entry.version <= current.entry.version <= before.entry.version + 2
            for entry in store.folder.history():
                assert known.setdefault(entry.version, entry.plan_id) == entry.plan_id, "history is not rewritten"
                if entry.kind is EntryKind.ROLLED_BACK:
                    assert entry.restores is not None
                    assert known[entry.restores] == entry.plan_id
            epochs = [entry.epoch for entry in store.folder.history()]
            assert epochs == sorted(epochs, reverse=True)
            if current is not None and before is None:
                assert current.plan.replicas[0].replicas > 0, "the first plan is not an empty one"
            status = world.loop.status()
            assert status.leads
            assert status.next_step_s > world.now_s - 150.0, "the next step is always ahead"
            if event[0] == "step" and event[2] == 0.1 and before is not None and current is not None:
                assert current.plan.replicas == before.plan.replicas or status.counts["roll_back"], (
                    "it was refused"
                )
