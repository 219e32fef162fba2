"""Retraining in a process of its own: lower priority, errors that keep their words, a deadline."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.training_log import kinds, write_log
from data.errors import LogError
from models.features import EndpointKind
from models.gbm import BoostSettings
from models.samples import KindKey
from models.store import ModelStore
from models.training import TrainingSettings
from planner.priority import LOW_NICENESS
from planner.retrain import RetrainJob
from planner.retrain_apart import retrain_apart
from planner.work_pool import WorkError


@dataclass(frozen=True)
class TellingKinds(dict[KindKey, EndpointKind]):
    """Hardware that writes down who unpacks it, and at which niceness: the retraining process does."""

    note: str

    def __setstate__(self, state: dict[str, str]) -> None:
        niceness = os.getpriority(os.PRIO_PROCESS, 0)
        Path(state["note"]).write_text(f"{os.getpid()} {niceness}")


def job(log: Path, known: dict[KindKey, EndpointKind]) -> RetrainJob:
    settings = TrainingSettings(boost=BoostSettings(mean_trees=5, quantile_trees=5))
    return RetrainJob([log], known, "2026-01-01T00:00:00+00:00", settings=settings)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "log"
    write_log(folder, 4000)
    return folder


def test_another_process_trains_at_lower_priority(log: Path, tmp_path: Path) -> None:
    note, before = tmp_path / "note", os.getpriority(os.PRIO_PROCESS, 0)
    known = TellingKinds(str(note))
    known.update(kinds())
    done = retrain_apart(job(log, known), tmp_path / "store")
    assert done.version == "v0001"
    assert done.promoted == (done.reasons == ())
    assert ModelStore(tmp_path / "store").versions() == ["v0001"]
    pid, niceness = map(int, note.read_text().split())
    assert pid != os.getpid()
    assert niceness >= LOW_NICENESS
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_errors_keep_their_words(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no log here"):
        retrain_apart(job(tmp_path, kinds()), tmp_path / "store")


def test_a_deadline_stops_the_process_and_leaves_nothing(log: Path, tmp_path: Path) -> None:
    before = {child.pid for child in multiprocessing.active_children()}
    with pytest.raises(WorkError, match=r"not done after 0\.01 s"):
        retrain_apart(job(log, kinds()), tmp_path / "store", deadline_s=0.01)
    assert {child.pid for child in multiprocessing.active_children()} <= before
    assert ModelStore(tmp_path / "store").versions() == []
