"""The demo as one recipe: log → train → plan → route and compare → report."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from data.fleet.reference import reference_fleet
from data.plan import PlanDocument
from planner.arm import Arm
from planner.compare import Comparison, compare
from planner.demo.settings import DemoSettings
from planner.demo.steps import (
    LOGGED_SPEEDS,
    demo_arms,
    demo_scenario,
    make_plan,
    model_quality,
    train_models,
    write_logs,
)
from planner.report.build import build_report
from planner.report.html import write_report
from planner.retrain import STEPS, Retrained
from planner.run_pool import RunPool, default_workers
from planner.sim.result import RunResult
from planner.trace_source import TraceFacts

REFERENCE = "least_request"
FLEET = "four-sites"


class Steps(Protocol):
    """Counts the steps of one stage."""

    def advance(self, note: str) -> None:
        """One more step is done."""
        ...


Stage = Callable[[str, int], AbstractContextManager[Steps]]
"""Opens a stage of so many steps, to be shown to whoever waits."""


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demo made, and where its report is."""

    facts: TraceFacts
    retrained: Retrained
    plan: PlanDocument
    comparison: Comparison
    report: Path


def run_demo(folder: Path, settings: DemoSettings, made_at: str, command: str, stage: Stage) -> DemoResult:
    """Run the whole loop on the built-in four-site fleet.

    Args:
        folder: Takes the logs, the model store, ``plan.json`` and ``report.html``; made when missing.
        settings: Sizes.
        made_at: UTC time, ISO 8601, for the model card and the report.
        command: Command line that makes the report again.
        stage: Shows progress.
    """
    fleet = reference_fleet(FLEET)
    scenario = demo_scenario(fleet, settings)
    store, plan_path, report = folder / "models", folder / "plan.json", folder / "report.html"
    with stage("reading the trace", 1) as steps:
        facts = scenario.facts(settings.first_seed)
        steps.advance(f"{facts.requests} requests")
    with stage("logging runs", len(LOGGED_SPEEDS)) as steps:
        logs = write_logs(scenario, settings, folder / "log", steps.advance)
    with stage("training latency models", STEPS + len(logs)) as steps:
        retrained = train_models(fleet, logs, store, made_at, steps.advance)
    with stage("planning the placement", 1) as steps:
        plan = make_plan(scenario, settings, plan_path)
        steps.advance(f"{plan.status.value}, {plan.gap:.1%} from the bound")
    arms = demo_arms(store if retrained.promoted else None, plan_path)
    seeds = range(settings.first_seed, settings.first_seed + settings.seeds)
    jobs = len(arms) * len(seeds)
    with stage("routing and comparing", jobs) as steps, RunPool(default_workers(jobs)) as pool:

        def done(arm: Arm, seed: int, run: RunResult) -> None:
            steps.advance(f"{arm.name}, seed {seed}: {run.total.goodput_tokens_per_s:.0f} good tokens/s")

        result = compare(arms, scenario.run, seeds, reference=REFERENCE, on_done=done, pool=pool)
    data = build_report(
        "TokenFleet on four sites",
        scenario,
        facts,
        result,
        plan=plan,
        quality=model_quality(retrained),
        command=command,
        made_at=made_at,
        skipped=[("trained model", f"not promoted: {reason}") for reason in retrained.verdict.reasons],
    )
    write_report(data, report)
    return DemoResult(facts, retrained, plan, result, report)
