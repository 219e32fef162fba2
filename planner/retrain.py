"""One retraining: logs in, a checked and published model version out, promoted if it has earned it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from data.errors import SettingError
from models.evaluate import evaluate
from models.features import EndpointKind
from models.peer_recipe import PeerPredictor
from models.promotion import Verdict, promotion_verdict
from models.public_logs.registry import load_public_log
from models.public_logs.training import training_samples
from models.samples import KindKey
from models.store import ModelStore
from models.training import Progress, Trained, TrainingSettings, publish, train_stock
from models.training_backend import LocalBackend, LocalStock, SampleStock, TrainingBackend
from planner.log_samples import log_parts

STEPS = 6
"""Steps that a retraining reports beside its windows: read, the four of ``models.training``, compare."""


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


def steps_of(job: RetrainJob) -> int:
    """How many steps :func:`retrain` will report: one for each window of the logs, and ``STEPS``.

    Raises:
        LogError: There is no log at one of the paths.
    """
    return STEPS + len(log_parts(job.logs, job.kinds, (job.since_s, job.until_s)))


def retrain(
    job: RetrainJob,
    store: ModelStore,
    progress: Progress = lambda _: None,
    backend: TrainingBackend | None = None,
) -> Retrained:
    """Read, train, publish and, if it has earned it, promote.

    Args:
        job: What to do.
        store: Where to.
        progress: Called with the name of each step.
        backend: Where logs are read and models fitted; ``None`` = in this process.

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
    stock = _stock(job, progress, backend or LocalBackend())
    trained = train_stock(stock, job.settings, job.created_at, progress)
    progress("compare with the serving model and the peers' recipe")
    verdict = promotion_verdict(trained, store)
    peer = evaluate(PeerPredictor(trained.fit_sample), trained.test)
    report = trained.card.report | {"peer": peer.to_dict(), "gate": verdict.to_dict()}
    trained = replace(trained, card=replace(trained.card, report=report))
    version = publish(trained, store)
    promoted = job.promote and verdict.promote
    if promoted:
        store.promote(version)
    return Retrained(version, promoted, verdict, trained, stock.facts.skipped)


def _stock(job: RetrainJob, progress: Progress, backend: TrainingBackend) -> SampleStock:
    if job.public:
        logs = [load_public_log(source, path) for source, path in job.public]
        return LocalStock(training_samples(logs, job.settings.prior, job.settings.split))
    parts = log_parts(job.logs, job.kinds, (job.since_s, job.until_s))
    return backend.read(parts, lambda: progress("window read"))
