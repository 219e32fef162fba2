"""Trains a latency model: the recipe from logged samples to a published, checked version."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from data.errors import ModelError, SettingError
from data.types import FloatArray
from models.base import BoolArray, FeatureMatrix
from models.calibration import LOAD_BANDS, calibrate
from models.card import TARGETS, ModelCard, Probe
from models.checks import CheckReport, release_checks
from models.compiled import Forest
from models.evaluate import Evaluation, evaluate
from models.features import INDEX, LEARNED, NAMES, UNITS, schema_hash
from models.forest_text import forest_from_text
from models.gbm import BoostSettings, TargetFit, fit_target
from models.physics import PriorPredictor, PriorSettings, check_quantiles, prior_times
from models.predictor import ResidualPredictor
from models.samples import Samples
from models.splits import SplitSettings, split_samples
from models.store import ModelStore

PROBE_ROWS = 24
CLAMP_SHARE = 0.001
"""Log-ratios beyond this share of the trained ones at each end are not served."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """All settings of a training.

    Attributes:
        quantiles: Levels, ascending, 0.5 among them.
        calibration_rows: Rows of a group below which its calibration borrows (20 or more).
    """

    quantiles: tuple[float, ...] = (0.5, 0.9)
    calibration_rows: int = 100
    prior: PriorSettings = field(default_factory=PriorSettings)
    boost: BoostSettings = field(default_factory=BoostSettings)
    split: SplitSettings = field(default_factory=SplitSettings)

    def __post_init__(self) -> None:
        check_quantiles(self.quantiles)
        if self.calibration_rows < 20:
            value = self.calibration_rows
            raise SettingError(
                "setting out of range", field="calibration_rows", value=value, expected="20 or more"
            )


@dataclass(frozen=True, slots=True)
class Trained:
    """A model that is not published yet, with what was measured on the newest window."""

    card: ModelCard
    forest: Forest
    texts: tuple[str, ...]
    predictor: ResidualPredictor
    test: Samples
    report: Evaluation
    prior_report: Evaluation
    checks: CheckReport


def train(
    samples: Samples, settings: TrainingSettings, created_at: str, progress: Progress = lambda _: None
) -> Trained:
    """Fit, calibrate, check and measure; the same samples and settings give the same bytes.

    Args:
        samples: Latency samples of one or more runs.
        settings: How to train.
        created_at: UTC time for the card, ISO 8601.
        progress: Called with the name of each step.

    Raises:
        ModelError: Too few samples (reason ``data``), or the compiled trees differ from LightGBM's own answer.
    """
    split = split_samples(samples, settings.split)
    fits: dict[str, TargetFit] = {}
    clamp: dict[str, tuple[float, float]] = {}
    for target in TARGETS:
        progress(f"fit {target}")
        part = _target(split.fit, target)
        log_ratio = np.log(part.value / _prior_median(part.features, target, settings.prior))
        fits[target] = fit_target(
            part.features, log_ratio, part.censored, part.weight, settings.quantiles, settings.boost
        )
        low, high = np.quantile(log_ratio, (CLAMP_SHARE, 1.0 - CLAMP_SHARE)).tolist()
        clamp[target] = (low, high)
    texts = tuple(text for target in TARGETS for text in fits[target].texts)
    progress("compile")
    forest = forest_from_text(texts)
    _check_oracle(forest, texts, split.fit.features)
    card = _card(samples, split.fit.features, fits, clamp, settings, created_at)
    progress("calibrate")
    card = replace(card, offsets=_offsets(ResidualPredictor(card, forest), split.calibrate, settings))
    predictor = ResidualPredictor(card, forest)
    progress("check and measure")
    checks = release_checks(predictor, split.test.features)
    report = evaluate(predictor, split.test)
    prior = PriorPredictor(settings.prior, settings.quantiles, samples.codes)
    prior_report = evaluate(prior, split.test)
    card = replace(
        card,
        report={"model": report.to_dict(), "prior": prior_report.to_dict()},
        checks=checks.values,
        probe=_probe(predictor, split.test.features),
    )
    return Trained(card, forest, texts, ResidualPredictor(card, forest), split.test, report, prior_report, checks)


def publish(trained: Trained, store: ModelStore) -> str:
    """Publish a trained model after loading it in a fresh process; gives its version.

    Raises:
        ModelError: The fresh process could not load it, or got other answers; then nothing is published.
    """
    return store.publish(trained.card, trained.forest, trained.texts, verify=_verify_in_fresh_process)


@dataclass(frozen=True, slots=True)
class TargetRows:
    """Rows that tell something of one target: its value or lower bound, and their weight."""

    features: FeatureMatrix
    value: FloatArray
    censored: BoolArray
    weight: FloatArray


def _target(samples: Samples, target: str) -> TargetRows:
    if target == "ttft_s":
        censored = np.isnan(samples.ttft_s)
        value = np.where(censored, samples.ttft_bound_s, samples.ttft_s)
        weight = np.ones(len(samples))
    else:
        censored = np.zeros(len(samples), dtype=bool)
        value, weight = samples.tpot_s, samples.gaps
    rows = ~np.isnan(value)
    return TargetRows(samples.features[rows], value[rows], censored[rows], weight[rows])


def _prior_median(features: FeatureMatrix, target: str, prior: PriorSettings) -> FloatArray:
    times = prior_times(features, prior)
    return times.ttft_s if target == "ttft_s" else times.tpot_s


def _offsets(predictor: ResidualPredictor, samples: Samples, settings: TrainingSettings) -> dict[str, object]:
    offsets: dict[str, object] = {}
    for target in TARGETS:
        part = _target(samples, target)
        predicted: FloatArray = getattr(predictor.predict(part.features), target)
        calibration = calibrate(
            np.log(part.value)[:, None] - np.log(predicted),
            part.censored,
            part.features[:, INDEX["gpu_type"]],
            part.features[:, INDEX["queue_depth"]],
            part.weight,
            settings.quantiles,
            len(samples.codes.gpu_types),
            settings.calibration_rows,
        )
        offsets[target] = calibration.offsets.tolist()
    return offsets


def _card(
    samples: Samples,
    fitted: FeatureMatrix,
    fits: dict[str, TargetFit],
    clamp: dict[str, tuple[float, float]],
    settings: TrainingSettings,
    created_at: str,
) -> ModelCard:
    import lightgbm

    learned = fitted[:, : len(LEARNED)]
    blank = np.zeros((len(samples.codes.gpu_types) + 1, len(LOAD_BANDS), len(settings.quantiles))).tolist()
    return ModelCard(
        version="",
        created_at=created_at,
        features=NAMES,
        units=tuple(UNITS.values()),
        schema_hash=schema_hash(),
        gpu_types=samples.codes.gpu_types,
        models=samples.codes.models,
        roles=tuple(np.unique(fitted[:, INDEX["role"]]).tolist()),
        quantiles=settings.quantiles,
        base={target: fits[target].base for target in TARGETS},
        low=_edge(learned, np.fmin),
        high=_edge(learned, np.fmax),
        clamp=clamp,
        offsets=dict.fromkeys(TARGETS, blank),
        prior=asdict(settings.prior),
        data={
            "rows": len(samples),
            "censored": int(np.isnan(samples.ttft_s).sum()),
            "runs": len(np.unique(samples.run)),
            "since_s": float(samples.decided_s.min()),
            "until_s": float(samples.decided_s.max()),
            "left_out": samples.dropped,
        },
        boost=asdict(settings.boost) | {"calibration_rows": settings.calibration_rows},
        libraries={"lightgbm": lightgbm.__version__, "numpy": np.__version__},
        importance={target: fits[target].gain for target in TARGETS},
    )


def _edge(learned: FeatureMatrix, reduce: np.ufunc) -> tuple[float, ...]:
    """Least or greatest known value of each feature; NaN for one that was never known."""
    values: list[float] = reduce.reduce(learned, axis=0).tolist()
    return tuple(values)


def _probe(predictor: ResidualPredictor, features: FeatureMatrix) -> Probe:
    rows = features[np.linspace(0, len(features) - 1, min(PROBE_ROWS, len(features))).astype(np.int64)]
    prediction = predictor.predict(rows)
    return Probe(_nested(rows), _nested(prediction.ttft_s), _nested(prediction.tpot_s))


def _nested(array: FloatArray) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in array.tolist())


def _check_oracle(forest: Forest, texts: tuple[str, ...], features: FeatureMatrix) -> None:
    """The compiled trees must give LightGBM's own answer to the last bit."""
    import lightgbm

    rows = np.ascontiguousarray(features[:512, : len(LEARNED)])
    sums = forest.predict(rows)
    for position, text in enumerate(texts):
        oracle = lightgbm.Booster(model_str=text).predict(rows, num_threads=1)
        if not np.array_equal(sums[position], oracle):
            raise ModelError(f"compiled forest {position} differs from LightGBM", reason="checks")


def _verify_in_fresh_process(folder: Path) -> None:
    command = [sys.executable, "-m", "models.verify_load", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise ModelError(f"a fresh process refused the model: {done.stderr.strip()}", reason="checks")
