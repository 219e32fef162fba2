"""Retraining in a process of its own at lowered priority, for programs that serve or plan meanwhile."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from models.store import ModelStore
from planner.apart import run_apart
from planner.priority import Priority
from planner.retrain import RetrainJob, retrain


@dataclass(frozen=True, slots=True)
class RetrainOutcome:
    """What came of a retraining elsewhere.

    Attributes:
        version: Name of the published version.
        promoted: Whether it serves now.
        reasons: Why it may not serve.
        skipped_files: Log files that could not be used, with the reason.
    """

    version: str
    promoted: bool
    reasons: tuple[str, ...]
    skipped_files: dict[str, str]


def retrain_apart(
    job: RetrainJob,
    store: Path,
    *,
    priority: Priority = "low",
    deadline_s: float | None = None,
    stop: threading.Event | None = None,
) -> RetrainOutcome:
    """Retrain in a fresh process and wait for it; the caller's thread sleeps meanwhile.

    Args:
        job: What to train; its threads are those of ``job.settings.boost``.
        store: Folder of the model store; a router that watches it takes the new model over.
        priority: Of that process, set before it reads a row.
        deadline_s: The process is stopped after so long; ``None`` = as long as it takes. Nothing half done is ever
            seen in the store.
        stop: The process is stopped soon after this is set.

    Raises:
        WorkError: The process died, the time was up, or it was told to stop.
        InputError, ModelError: As :func:`planner.retrain.retrain`.
    """
    return run_apart(_retrain, job, store, priority=priority, deadline_s=deadline_s, stop=stop)


def _retrain(job: RetrainJob, store: Path) -> RetrainOutcome:
    done = retrain(job, ModelStore(store))
    return RetrainOutcome(done.version, done.promoted, done.verdict.reasons, done.skipped_files)
