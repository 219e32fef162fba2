"""TokenPilot with a trained latency model: trained on logged runs of the training traffic, as the demo does it."""

from __future__ import annotations

from pathlib import Path

from benchmarks.proof.runs import Cell
from models.store import ModelStore
from planner.arm import Arm
from planner.demo.settings import DemoSettings
from planner.demo.steps import train_models, write_logs

CREATED_AT = "2026-01-01T00:00:00Z"
"""Stands in the model card; the runs themselves have no date."""


def learned_arm(cell: Cell, policy: str, folder: Path) -> Arm | None:
    """The arm with the model in ``folder``, which is trained first if it is not there.

    Args:
        cell: The training traffic, at the load that everything is tuned at.
        policy: A policy that predicts.
        folder: Logs and the model store; below it nothing else.

    Returns:
        ``None`` if no model passed the checks that publishing asks for.
    """
    store = folder / "store"
    if not store.is_dir():
        scenario = cell.scenario.at_speed(cell.speed)
        logs = write_logs(scenario, DemoSettings(), folder / "logs", lambda _: None)
        train_models(scenario.fleet, logs, store, CREATED_AT, lambda _: None)
    if ModelStore(store).current() is None:
        return None
    return Arm(f"{policy}, trained", policy, {}, str(store))
