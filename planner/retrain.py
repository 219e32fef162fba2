"""One retraining: logs in, a checked and published model version out, promoted if it has earned it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from data.errors import SettingError
from data.log.reader import LogReader
from models.features import EndpointKind
from models.promotion import Verdict, promotion_verdict
from models.public_logs.registry import load_public_log
from models.public_logs.training import training_samples
from models.samples import KindKey, Samples, samples_from_tables
from models.store import ModelStore
from models.training import Progress, Trained, TrainingSettings, publish, train

STEPS = 6
"""Steps that a retraining reports: read, the five of ``models.training.train``."""


@dataclass(frozen=True, slots=True)
class RetrainJob:
    """What to train on and what to do with the result.

    Attributes:
        logs: Log folders; each is a run of its own with its own clock.
        public: Public logs instead: source name and path of each; their whole time is used.
        kinds: Hardware by the names of the log.
        since_s, until_s: Window of decisions on the logs' clocks; ``until_s`` is not included.
        promote: Let the new version serve if the verdict allows it.
        created_at: UTC time for the card, ISO 8601.
    """

    logs: Sequence[Path]
    kinds: Mapping[KindKey, EndpointKind]
    created_at: str
    since_s: float = 0.0
    until_s: float = math.inf
    promote: bool = True
    settings: TrainingSettings = field(default_factory=TrainingSettings)
    public: Sequence[tuple[str, Path]] = ()


@dataclass(frozen=True, slots=True)
class Retrained:
    """What came of it.

    Attributes:
        version: Name of the published version.
        promoted: Whether it serves now.
        verdict: Whether it may serve, and why not.
        trained: The model with its measurements.
        skipped_files: Log files that could not be used, with the reason.
    """

    version: str
    promoted: bool
    verdict: Verdict
    trained: Trained
    skipped_files: dict[str, str]


def retrain(job: RetrainJob, store: ModelStore, progress: Progress = lambda _: None) -> Retrained:
    """Read, train, publish and, if it has earned it, promote.

    Raises:
        LogError: A log cannot be read.
        SettingError: Logs of both kinds are given, or a public log is unknown.
        ModelError: Too few samples, or the model failed its verification in a fresh process.
    """
    progress("read the log")
    if job.public and job.logs:
        raise SettingError(
            "logs of two kinds", field="public", expected="public logs or logs of a fleet, not both"
        )
    readers = [LogReader(path) for path in job.logs]
    tables = [reader.window(job.since_s, job.until_s) for reader in readers]
    samples = _public_samples(job) if job.public else samples_from_tables(tables, job.kinds)
    trained = train(samples, job.settings, job.created_at, progress)
    verdict = promotion_verdict(trained, store)
    version = publish(trained, store)
    promoted = job.promote and verdict.promote
    if promoted:
        store.promote(version)
    skipped = {name: reason for reader in readers for name, reason in reader.report.skipped.items()}
    return Retrained(version, promoted, verdict, trained, skipped)


def _public_samples(job: RetrainJob) -> Samples:
    logs = [load_public_log(source, path) for source, path in job.public]
    return training_samples(logs, job.settings.prior, job.settings.split)
