"""The steps of the demo, each a call of the part that does it in production."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data.catalog.load import load_catalog
from data.fleet.types import Fleet
from data.log.settings import LogSettings
from data.log.writer import LogWriter
from data.plan import PlanDocument
from data.plan_io import write_plan
from models.evaluate import Evaluation
from models.hardware import fleet_kinds
from models.store import ModelStore
from models.training import Trained, TrainingSettings
from planner.arm import Arm
from planner.demand_trace import TraceWindow, demand_from_trace
from planner.demo.settings import DemoSettings
from planner.demo.workload import demo_trace
from planner.report.data import ModelQuality
from planner.retrain import Retrained, RetrainJob, retrain
from planner.run_pool import RunPool, default_workers
from planner.scenario import Scenario
from planner.service import plan_once
from planner.sim.result import RunResult
from planner.sim.settings import SimSettings
from planner.trace_source import Shaped

OnStep = Callable[[str], None]

LOGGED_SPEEDS = {"random": 0.7, "least_request": 1.0, "kv_cost_dynamo": 1.2, "tokenpilot": 1.1}
"""What routed while the training log was written (a fleet that has tried several things), and the arrival speed of
each run, so that the log holds quiet and busy hours."""
UNPLANNED = "unplanned"
"""Marks the arms that run on the placement before the plan."""
SCATTER_POINTS = 1500


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """Runs an arm at the speed that is set for its policy, and writes decisions and outcomes."""

    scenario: Scenario
    folder: Path

    def __call__(self, arm: Arm, seed: int) -> RunResult:
        """Simulate one run into its own log."""
        scenario = self.scenario.at_speed(LOGGED_SPEEDS[arm.policy])
        settings = LogSettings(rotate_age_s=None)
        with LogWriter(log_folder(self.folder, arm.policy, seed), settings, writer_id=arm.policy) as log:
            return scenario.run(arm, seed, sink=log)


def log_folder(folder: Path, policy: str, seed: int) -> Path:
    """Where the log of one run stands."""
    return folder / f"{policy}-{seed}"


def demo_scenario(fleet: Fleet, settings: DemoSettings) -> Scenario:
    """The fleet, what its tenants send, and clients that retry once and give up in the end.

    Every run ends when the trace does: all policies are measured over the same period.
    """
    trace = Shaped(demo_trace(settings.rate_per_s, settings.duration_s))
    return Scenario(fleet, trace, SimSettings(retries=1, cancel_share=0.005, time_limit_s=settings.duration_s))


def write_logs(scenario: Scenario, settings: DemoSettings, folder: Path, done: OnStep) -> list[Path]:
    """Run the fleet as it stands under several policies and log every decision; one folder a run."""
    jobs = [
        (Arm(policy, policy), seed) for policy, seed in zip(LOGGED_SPEEDS, settings.training_seeds, strict=True)
    ]
    with RunPool(default_workers(len(jobs))) as pool:

        def note(arm: Arm, seed: int, run: RunResult) -> None:  # noqa: ARG001
            done(f"logged a run routed by {arm.name}")

        pool.run(LoggedRun(scenario, folder), jobs, note)
    return [log_folder(folder, arm.policy, seed) for arm, seed in jobs]


def train_models(fleet: Fleet, logs: Sequence[Path], store: Path, created_at: str, done: OnStep) -> Retrained:
    """Train, check, publish and promote latency models from the logs."""
    kinds = fleet_kinds([fleet], load_catalog())
    job = RetrainJob(logs, kinds, created_at, settings=TrainingSettings())
    return retrain(job, ModelStore(store), done)


def make_plan(scenario: Scenario, settings: DemoSettings, path: Path) -> PlanDocument:
    """Plan for the demand of a training seed, and write the plan."""
    batches = scenario.trace.batches(settings.training_seeds[0])
    demand = demand_from_trace(batches, scenario.fleet, TraceWindow(end_s=settings.duration_s))
    plan = plan_once(scenario.fleet, load_catalog(), demand)
    write_plan(plan, path)
    return plan


def demo_arms(store: Path | None, plan: Path) -> list[Arm]:
    """The usual policies and TokenPilot on the planned placement, and two of them on the one before.

    Without a promoted model (``store`` is ``None``) TokenPilot runs with the prior alone.
    """
    model, planned = None if store is None else str(store), str(plan)
    usual = {
        "round_robin": {},
        "least_request": {},
        "cache_aware_smg": {},
        "sticky_until_saturated_llmd": {},
        "mooncake_no_transfer": {},
        "kv_cost_dynamo": {"scale": 16.0},
        "rtt_aware_gorgo": {},
    }
    arms = [Arm(name, name, values, None, planned) for name, values in usual.items()]
    if model is not None:
        arms.append(Arm("tokenpilot, prior only", "tokenpilot", {}, None, planned))
    return [
        Arm(f"least_request, {UNPLANNED}", "least_request"),
        Arm(f"tokenpilot, {UNPLANNED}", "tokenpilot", {}, model),
        *arms,
        Arm("tokenpilot", "tokenpilot", {}, model, planned),
    ]


def model_quality(retrained: Retrained) -> list[ModelQuality]:
    """Figures of the newest window, which the model was not trained on, for the report."""
    trained = retrained.trained
    return [
        _quality(trained, retrained.version, "TTFT", "ttft_s"),
        _quality(trained, retrained.version, "TPOT", "tpot_s"),
    ]


def _quality(trained: Trained, version: str, target: str, column: str) -> ModelQuality:
    test = trained.test
    prediction = trained.predictor.predict(test.features)
    observed = getattr(test, column)
    predicted = getattr(prediction, column)[:, prediction.median_column]
    known = np.flatnonzero(np.isfinite(observed))
    shown = known[:: max(len(known) // SCATTER_POINTS, 1)]
    mine = trained.report.overall(column)
    return ModelQuality(
        target="TTFT" if target == "TTFT" else "TPOT",
        predicted_s=predicted[shown],
        observed_s=observed[shown],
        coverage=tuple((float(level), share) for level, share in mine.coverage.items()),
        median_error=mine.median_error,
        prior_median_error=_median_error(trained.prior_report, column),
        model_version=version,
    )


def _median_error(report: Evaluation, column: str) -> float:
    return report.overall(column).median_error
