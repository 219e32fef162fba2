"""Puts a report together from a scenario and its comparison."""

from __future__ import annotations

import platform
from collections.abc import Sequence

import numpy as np

from data.plan import PlanDocument
from data.version import __version__
from planner.compare import Comparison
from planner.load_level import LoadLevel
from planner.report import numbers
from planner.report.data import ModelQuality, ReportData
from planner.scenario import Scenario
from planner.sim.settings import SimSettings
from planner.trace_source import TraceFacts


def build_report(
    title: str,
    scenario: Scenario,
    facts: TraceFacts,
    comparison: Comparison,
    *,
    plan: PlanDocument | None = None,
    quality: Sequence[ModelQuality] = (),
    load: LoadLevel | None = None,
    command: str = "",
    made_at: str = "",
    skipped: Sequence[tuple[str, str]] = (),
) -> ReportData:
    """The input of ``planner.report.html``; see ``ReportData`` for the fields.

    Args:
        title: Headline of the page.
        scenario: What was run.
        facts: What was offered with the first seed.
        comparison: What came of it.
        plan: Plan to show beside the fleet.
        quality: Latency model figures.
        load: How the arrival speed was found, if it was searched for.
        command: Command line that makes it again.
        made_at: UTC time as text.
        skipped: (what, why) of parts that could not run.
    """
    varies = ("Seeds change", scenario.trace.varies)
    settings = [varies, *settings_facts(scenario.settings), *arm_facts(comparison)]
    if load is not None:
        settings.append(("Load level", load_text(load)))
    return ReportData(
        title=title,
        comparison=comparison,
        fleet=scenario.fleet,
        trace=facts,
        settings=tuple(settings),
        plan=plan,
        quality=tuple(quality),
        command=command,
        made_at=made_at,
        versions=(("TokenFleet", __version__), ("Python", platform.python_version()), ("numpy", np.__version__)),
        skipped=tuple(skipped),
    )


def settings_facts(settings: SimSettings) -> list[tuple[str, str]]:
    """Run settings as (name, text): all that bear on the result, in plain words."""
    timeout = settings.client_timeout_s
    limit = settings.time_limit_s
    facts = [
        ("Load reports", f"every {settings.scrape_period_s:g} s, {settings.scrape_delay_s:g} s late"),
        ("KV events", f"{settings.kv_event_lag_s:g} s late"),
        ("Step noise", numbers.share(settings.step_noise)),
        ("Client time-out", "that of each class" if timeout is None else f"{timeout:g} s"),
        ("Cancels", f"{numbers.share(settings.cancel_share)} of requests"),
        (
            "Retries",
            f"{settings.retries}, first after {settings.retry_backoff_s:g} s" if settings.retries else "none",
        ),
        ("Ends", "when all requests have ended" if limit is None else f"at {limit:g} s"),
    ]
    failures = [
        ("Failure", f"{one.kind} of endpoint {one.endpoint} at {one.at_s:g} s for {one.duration_s:g} s")
        for one in settings.failures
    ]
    return [*facts, *failures]


def arm_facts(comparison: Comparison) -> list[tuple[str, str]]:
    """Settings, model and plan of the arms that have any."""
    facts = []
    for entry in comparison.arms:
        arm = entry.arm
        parts = [f"{key} = {value}" for key, value in arm.settings.items()]
        parts += [f"model of {arm.predictor_path}"] if arm.predictor_path is not None else []
        parts += ["drift guard"] if arm.drift_guard else []
        parts += [f"plan {arm.plan_path}"] if arm.plan_path is not None else []
        if parts:
            facts.append((arm.name, ", ".join(parts)))
    return facts


def load_text(load: LoadLevel) -> str:
    """How the speed was found, in one sentence."""
    reached = "reached" if load.reached else "not reached within the tolerance; nearest"
    return f"{reached}: {load.attainment:.1%} at speed {load.speed:.4g}, {len(load.trials)} speeds tried"
