"""Traffic moves from one version to the next in steps, each behind a gate, and back at once when one fails."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.errors import DocumentError, InputError
from data.fleet.load import parse_fleet
from data.log.settings import LogSettings
from data.log.writer import LogWriter
from data.plan import PlanDocument, VersionRamp
from data.types import Status
from planner.demand import DemandRow, demand_table, spread_quantiles
from planner.loop.loop_parts import LoopParts
from planner.loop.ramp import RampSpec, VersionService, judge_ramp, load_ramp, ramped_demand
from planner.loop.ramp_turn import RampTurn
from planner.loop.runner import PlannerLoop
from planner.loop.schedule import Schedule
from planner.loop.settings import LoopSettings
from planner.loop.sources import FileSource
from planner.plan_store.entry import EntryKind
from planner.plan_store.store import PlanStore, utc_text
from planner.settings import PlannerSettings
from solver.settings import PlacementSettings

START_S = 1_800_000_000.0
FLEET = """
name: small
sites: [{name: eu-1, role: compute, zone: eu}]
gpu_pools: [{site: eu-1, gpu_type: H100, count: 6}]
models:
  - {name: chat, version: v1, catalog: llama-3.1-8b, context_limit_tokens: 32768}
  - {name: chat, version: v2, catalog: llama-3.1-8b, context_limit_tokens: 32768}
configs:
  - {name: chat-v1, model: chat@v1, gpu_type: H100, tensor_parallel: 1}
  - {name: chat-v2, model: chat@v2, gpu_type: H100, tensor_parallel: 1}
classes:
  - {name: interactive, slo: {ttft_s: 1.0, tpot_s: 0.06}, expected_input_tokens: 1500, expected_output_tokens: 250}
tenants: [{name: acme}]
placement: [{site: eu-1, config: chat-v1, replicas: 2}]
"""
DEMAND = """
demand: [{model: chat@v1, workload_class: interactive, tenant: acme, origin: eu-1, tokens_per_s: 5000}]
"""
SPEC = RampSpec("chat", "v1", "v2", hold_s=600.0)
RAMP = VersionRamp("chat", "chat@v1", "chat@v2", 0.1, utc_text(START_S), SPEC.ramp_id)
GOOD = VersionService(500.0, 0.4, 0.0, 0.98)


@pytest.mark.parametrize(
    ("new", "after_s", "share", "state", "said"),
    [
        (GOOD, 300.0, 0.1, "ramping", "not over"),
        (GOOD, 600.0, 0.5, "ramping", "every gate held"),
        (replace(GOOD, requests=99.0), 9000.0, 0.1, "ramping", "too few"),
        (None, 9000.0, 0.1, "ramping", "too few"),
        (replace(GOOD, ttft_p95_s=0.95), 200.0, 0.0, "failed", "P95 of the TTFT is 0.95 s; limit 0.48 s"),
        (replace(GOOD, error_share=0.02), 200.0, 0.0, "failed", "failed requests is 2.0%; limit 1.0%"),
        (
            replace(GOOD, good_share=0.9),
            200.0,
            0.0,
            "failed",
            "Goodput is 90.0% of the offered tokens; limit 93.0%",
        ),
        (replace(GOOD, ttft_p95_s=math.nan, error_share=1.0), 200.0, 0.0, "failed", "100.0%"),
    ],
)
def test_gates_decide_on_the_next_step_f116(
    new: VersionService | None, after_s: float, share: float, state: str, said: str
) -> None:
    """F116: a step lasts its time on enough requests; a gate that fails is named with its value and its limit."""
    verdict = judge_ramp(SPEC, RAMP, GOOD, new, START_S + after_s, 60.0)
    assert (verdict.ramp.share, verdict.ramp.state) == (share, state)
    assert said in verdict.reason
    assert verdict.moved == (verdict.ramp != RAMP)


def test_traffic_comes_after_the_replicas_and_the_last_gate_ends_the_ramp() -> None:
    begins = replace(RAMP, share=0.0)
    assert not judge_ramp(SPEC, begins, None, None, START_S + 59.0, 60.0).moved
    assert judge_ramp(SPEC, begins, None, None, START_S + 60.0, 60.0).ramp.share == 0.1
    last = judge_ramp(SPEC, replace(RAMP, share=1.0), GOOD, GOOD, START_S + 600.0, 60.0)
    assert (last.ramp.share, last.ramp.state) == (1.0, "done")
    assert not judge_ramp(SPEC, last.ramp, GOOD, replace(GOOD, error_share=1.0), START_S + 1e6, 60.0).moved


@given(st.floats(0, 1e5), st.floats(0, 1e5), st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_the_old_version_is_planned_for_all_traffic_and_held(old: float, new: float, share: float) -> None:
    """F116: whatever already runs at the new one; and the new one has room for the step that comes next."""
    place = ("interactive", "acme", "eu-1")
    rows = [
        DemandRow(key, *place, spread_quantiles(rate, 0.2)) for key, rate in (("chat@v1", old), ("chat@v2", new))
    ]
    other = DemandRow("code@v1", *place, spread_quantiles(7.0, 0.2))
    made = ramped_demand(demand_table([*rows, other]), SPEC, replace(RAMP, share=share))
    median = {row.model: row.median for row in made.rows}
    assert median["chat@v1"] == pytest.approx(old + new)
    assert median["chat@v2"] == pytest.approx((old + new) * SPEC.after(share))
    assert median["code@v1"] == pytest.approx(7.0)
    assert ("chat@v1", *place) in made.missing
    back = ramped_demand(demand_table([*rows, other]), SPEC, replace(RAMP, share=0.0, state="failed"))
    assert {row.model for row in back.rows} == {"chat@v1", "code@v1"}
    assert ramped_demand(made, SPEC, replace(RAMP, state="done")) == made


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{model: chat, old: v1, new: v1}", "the same version twice"),
        ("{model: chat, old: v1, new: v2, steps: [0.5, 0.1, 1]}", "not rising to 1"),
        ("{model: chat, old: v1, new: v2, steps: [0.1, 0.5]}", "not rising to 1"),
        ("{model: chat, old: v1, new: v2, hold: 5}", "hold"),
        ("{model: chat, old: v1, new: v3}", "not in the fleet"),
    ],
)
def test_a_ramp_file_is_read_strictly(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "ramp.yaml"
    path.write_text(text)
    with pytest.raises((DocumentError, InputError), match=said):
        load_ramp(path, parse_fleet(FLEET, "f"))
    path.write_text("{model: chat, old: v1, new: v2, x-why: a test}")
    assert load_ramp(path, parse_fleet(FLEET, "f")) == RampSpec("chat", "v1", "v2")


class Walk:
    """A planner over a real store and a real log; time moves by hand, steps plan for real."""

    def __init__(self, folder: Path) -> None:
        self.now_s, self.number, self.log = START_S, 0, folder / "log"
        (folder / "fleet.yaml").write_text(FLEET)
        (folder / "demand.yaml").write_text(DEMAND)
        self.store = PlanStore(folder / "plans")
        settings = LoopSettings(settle_s=60.0, watch_s=0.0, shadow_requests=40, shadow_seeds=1, window_s=30.0)
        parts = LoopParts(
            folder / "fleet.yaml",
            self.store,
            (FileSource(folder / "demand.yaml"),),
            Schedule(900.0),
            PlannerSettings(placement=PlacementSettings(time_limit_s=4.0)),
            replace(settings, shadow_policy="least_request", shadow_loss=1.0),
        )
        before = PlannerLoop(parts, lambda: self.now_s, self.apart)
        before.tick()
        self.turn = RampTurn(SPEC, self.log, self.store.folder, settings.settle_s)
        self.loop = PlannerLoop(replace(parts, ramp=self.turn), lambda: self.now_s, self.apart)

    @staticmethod
    def apart(function: Callable[..., Any], *arguments: Any, **limits: Any) -> Any:
        assert limits["deadline_s"] > 0
        return function(*arguments)

    def tick(self, later_s: float) -> None:
        self.now_s += later_s
        self.loop.tick()

    def served(self, model: str, ttft_s: float, seconds: float) -> None:
        """One request a second of this version, from now on."""
        with LogWriter(self.log, LogSettings(rotate_age_s=None)) as writer:
            for second in range(int(seconds)):
                self.number += 1
                key = {"request_id": self.number, "attempt": 0}
                names = {"model": model, "tenant": "acme", "workload_class": "interactive"}
                at_s = self.now_s + second
                writer.decision({**key, **names, "decided_s": at_s, "input_tokens": 900, "rtt_s": 0.0})
                end = {"finished_s": at_s + 3.0, "ttft_s": ttft_s, "e2e_s": 3.0, "output_tokens": 100}
                writer.outcome({**key, **end, "status": int(Status.COMPLETED)})

    def plans(self) -> list[PlanDocument]:
        """All that were in force, oldest first."""
        return [self.store.folder.version(number).plan for number in reversed(self.store.folder.versions())]

    def replicas(self) -> list[tuple[int, int]]:
        """Replicas of both versions in each plan."""
        counts = [{row.config: row.replicas for row in plan.replicas} for plan in self.plans()]
        return [(count.get("chat-v1", 0), count.get("chat-v2", 0)) for count in counts]

    def at(self) -> tuple[float, str]:
        """Where the ramp stands."""
        (ramp,) = self.plans()[-1].ramps
        return ramp.share, ramp.state


def test_a_worse_version_is_taken_back_at_its_first_step_f116(tmp_path: Path) -> None:
    """F116: traffic goes back to the old version, the placement is the one before, the gate is told."""
    walk = Walk(tmp_path)
    first = walk.replicas()[0]
    assert first[1] == 0
    walk.tick(900.0)
    assert walk.at() == (0.0, "ramping")
    assert walk.replicas()[-1][1] >= 1, "room for the first step, before any traffic"
    walk.tick(60.0)
    assert walk.at() == (0.1, "ramping")
    walk.served("chat@v1", 0.4, 300.0)
    walk.served("chat@v2", 0.95, 300.0)
    walk.tick(400.0)
    entry = next(e for e in walk.store.folder.history() if e.kind is EntryKind.ROLLED_BACK)
    assert (entry.restores, walk.at()) == (1, (0.0, "failed"))
    assert "at 10% of the traffic the P95 of the TTFT is 0.95 s; limit 0.48 s" in entry.reason
    back = walk.store.folder.version(entry.version).plan
    assert [row.replicas for row in back.replicas if row.config == "chat-v1"] == [first[0]]
    assert sum(row.replicas for row in back.replicas if row.config == "chat-v2") == 0
    assert back.shares == walk.plans()[0].shares
    assert min(old for old, _ in walk.replicas()) >= first[0], "the old version never had fewer"
    walk.tick(3600.0)
    assert (walk.at(), walk.replicas()[-1][1]) == ((0.0, "failed"), 0), "and it stays out"


def test_a_good_version_takes_all_traffic_step_by_step_f116(tmp_path: Path) -> None:
    """F116: the old version keeps its replicas until the last gate has passed; also across a restart."""
    walk, seen = Walk(tmp_path), []
    first = walk.replicas()[0]
    walk.tick(900.0)
    walk.tick(60.0)
    for _ in range(3):
        walk.served("chat@v1", 0.4, 600.0)
        walk.served("chat@v2", 0.41, 600.0)
        seen.append(walk.at())
        walk.loop = PlannerLoop(walk.loop.parts, lambda: walk.now_s, walk.apart)
        walk.tick(760.0)
    assert seen == [(0.1, "ramping"), (0.5, "ramping"), (1.0, "ramping")]
    assert walk.at() == (1.0, "done")
    ramping = [counts for counts, plan in zip(walk.replicas(), walk.plans(), strict=True) if plan.ramps]
    assert min(old for old, _ in ramping) >= first[0]
    whole = [new for (_, new), plan in zip(walk.replicas(), walk.plans(), strict=True)
             if plan.ramps and plan.ramps[0].share == 1.0]  # fmt: skip
    assert min(whole) >= first[0], "all traffic comes to replicas that stand already"
    walk.tick(900.0)
    assert walk.at() == (1.0, "done")
