"""Retraining beside the loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from data.errors import LogError, TokenFleetError
from data.fleet.types import Fleet
from planner.loop.retraining import Retraining, RetrainingSettings
from planner.loop.schedule import Schedule
from planner.retrain_apart import RetrainOutcome
from planner.work_pool import WorkError

NOW_S = 1_800_000_000.0


class Trainer:
    """Remembers what it was asked for."""

    def __init__(self, answer: RetrainOutcome | TokenFleetError) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    def __call__(self, job: Any, store: Path, **limits: Any) -> RetrainOutcome:
        self.asked.append((job, store, limits))
        if isinstance(self.answer, TokenFleetError):
            raise self.answer
        return self.answer


def made(fleet: Fleet, folder: Path, trainer: Trainer) -> Retraining:
    settings = RetrainingSettings(folder / "log", folder / "models", Schedule(86_400.0), 3600.0)
    return Retraining(settings, lambda: fleet, lambda: NOW_S, trainer)


def test_the_last_part_of_the_log_is_trained_on(fleet: Fleet, tmp_path: Path) -> None:
    trainer = Trainer(RetrainOutcome("v0003", True, (), {}))
    assert made(fleet, tmp_path, trainer).train_now() == "v0003 promoted"
    job, store, limits = trainer.asked[0]
    assert (job.logs, store) == ([tmp_path / "log"], tmp_path / "models")
    assert (job.since_s, job.until_s) == (NOW_S - 3600.0, NOW_S)
    assert limits["deadline_s"] > 0


def test_a_model_that_has_not_earned_it_is_told_with_its_reasons(fleet: Fleet, tmp_path: Path) -> None:
    trainer = Trainer(RetrainOutcome("v0004", False, ("worse than v0003",), {}))
    assert made(fleet, tmp_path, trainer).train_now() == "v0004 not promoted: worse than v0003"


@pytest.mark.parametrize("error", [LogError("no log here"), WorkError("not done after 5 s")])
def test_a_training_that_fails_is_told_and_nothing_else(
    fleet: Fleet, tmp_path: Path, error: TokenFleetError
) -> None:
    found = made(fleet, tmp_path, Trainer(error))
    assert str(error) in found.train_now()
    assert found.last.startswith("failed")


def test_it_stops_when_it_is_told_to(fleet: Fleet, tmp_path: Path) -> None:
    trainer = Trainer(RetrainOutcome("v0001", True, (), {}))
    found = made(fleet, tmp_path, trainer)
    found.stop()
    found.run()
    assert trainer.asked == []
