"""Retraining in a process of its own at lowered priority, for programs that serve or plan meanwhile."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from models.store import ModelStore
from planner.priority import Priority, lower_priority
from planner.retrain import RetrainJob, retrain
from planner.work_pool import WorkError


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
    job: RetrainJob, store: Path, *, priority: Priority = "low", deadline_s: float | None = None
) -> RetrainOutcome:
    """Retrain in a fresh process and wait for it; the caller's thread sleeps meanwhile.

    Args:
        job: What to train; its threads are those of ``job.settings.boost``.
        store: Folder of the model store; a router that watches it takes the new model over.
        priority: Of that process, set before it reads a row.
        deadline_s: The process is stopped after so long; ``None`` = as long as it takes. Nothing half done is ever
            seen in the store.

    Raises:
        WorkError: The process died, or the time was up.
        InputError, ModelError: As :func:`planner.retrain.retrain`.
    """
    context = multiprocessing.get_context("spawn")
    before = {child.pid for child in multiprocessing.active_children()}
    executor = ProcessPoolExecutor(1, mp_context=context, initializer=lower_priority, initargs=(priority,))
    future = executor.submit(_retrain, job, store)
    try:
        return future.result(deadline_s)
    except FutureTimeoutError as error:
        raise WorkError(f"the retraining was not done after {deadline_s:g} s") from error
    except BrokenProcessPool as error:
        raise WorkError("the retraining process died (out of memory?)") from error
    finally:
        if not future.done():
            for child in multiprocessing.active_children():
                if child.pid not in before:
                    child.terminate()
        executor.shutdown(wait=True, cancel_futures=True)


def _retrain(job: RetrainJob, store: Path) -> RetrainOutcome:
    done = retrain(job, ModelStore(store))
    return RetrainOutcome(done.version, done.promoted, done.verdict.reasons, done.skipped_files)
