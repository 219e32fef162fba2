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
from models.calibration import LOAD_BANDS, calibrate, levelled
from models.card import TARGETS, ModelCard, Probe
from models.checks import CheckReport, release_checks
from models.compiled import Forest
from models.evaluate import Evaluation, evaluate
from models.features import INDEX, LEARNED, NAMES, UNITS, schema_hash
from models.fit_shard import Fitted, ShardSettings, target_rows
from models.forest_text import forest_from_text
from models.gbm import BoostSettings
from models.physics import PriorPredictor, PriorSettings, check_quantiles
from models.predictor import ResidualPredictor
from models.samples import Samples, join_samples
from models.splits import SplitSettings, split_rows
from models.store import ModelStore
from models.training_backend import LocalStock, SampleStock, StockFacts

PROBE_ROWS = 24
MOST_HELD_ROWS = 1_000_000
"""Rows of the calibration and of the newest window that are used at most, each; more are thinned out evenly."""
FIT_SAMPLE_ROWS = 100_000
"""Fitted rows that are kept with a trained model, at most, for comparisons with other recipes."""

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
    """A model that is not published yet, with what was measured on the newest window.

    ``test`` holds rows of that window, ``fit_sample`` some of the rows that the model was fitted on.
    """

    card: ModelCard
    forest: Forest
    texts: tuple[str, ...]
    predictor: ResidualPredictor
    test: Samples
    report: Evaluation
    prior_report: Evaluation
    checks: CheckReport
    fit_sample: Samples


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
    return train_stock(LocalStock(samples), settings, created_at, progress)


def train_stock(
    stock: SampleStock, settings: TrainingSettings, created_at: str, progress: Progress = lambda _: None
) -> Trained:
    """The same for samples that a training backend holds; see :func:`train`."""
    facts = stock.facts
    fit_rows, calibrate_rows, test_rows = split_rows(facts.decided_s, facts.run, settings.split)
    progress("fit")
    fitted = stock.fit(fit_rows, ShardSettings(settings.quantiles, settings.prior, settings.boost))
    texts = tuple(text for target in TARGETS for text in fitted.targets[target].texts)
    progress("compile")
    held_out = stock.take(thinned(calibrate_rows, MOST_HELD_ROWS))
    forest = forest_from_text(texts)
    _check_oracle(forest, texts, held_out.features)
    card = _card(facts, fitted, settings, created_at)
    progress("calibrate")
    fit_sample = stock.take(thinned(fit_rows, FIT_SAMPLE_ROWS))
    card = replace(card, offsets=_offsets(ResidualPredictor(card, forest), fit_sample, held_out, settings))
    predictor = ResidualPredictor(card, forest)
    progress("check and measure")
    test = stock.take(thinned(test_rows, MOST_HELD_ROWS))
    checks = release_checks(predictor, test.features)
    report = evaluate(predictor, test)
    prior = PriorPredictor(settings.prior, settings.quantiles, facts.codes)
    prior_report = evaluate(prior, test)
    card = replace(
        card,
        report={"model": report.to_dict(), "prior": prior_report.to_dict()},
        checks=checks.values,
        probe=_probe(predictor, test.features),
    )
    predictor = ResidualPredictor(card, forest)
    return Trained(card, forest, texts, predictor, test, report, prior_report, checks, fit_sample)


def thinned(rows: BoolArray, most: int) -> BoolArray:
    """A mask with at most ``most`` of the rows of ``rows``, evenly spaced."""
    chosen = np.flatnonzero(rows)
    if len(chosen) <= most:
        return rows
    mask = np.zeros(len(rows), dtype=bool)
    mask[chosen[np.linspace(0, len(chosen) - 1, most).astype(np.int64)]] = True
    return mask


def publish(trained: Trained, store: ModelStore) -> str:
    """Publish a trained model after loading it in a fresh process; gives its version.

    Raises:
        ModelError: The fresh process could not load it, or got other answers; then nothing is published.
    """
    return store.publish(trained.card, trained.forest, trained.texts, verify=_verify_in_fresh_process)


def _offsets(
    predictor: ResidualPredictor, fit_sample: Samples, held_out: Samples, settings: TrainingSettings
) -> dict[str, object]:
    """How groups differ comes from all rows, since a day alone says little of a group; the level from held-out."""
    offsets: dict[str, object] = {}
    everything = join_samples([fit_sample, held_out], held_out.codes, held_out.dropped)
    for target in TARGETS:
        groups, codes = _errors(predictor, everything, target), len(held_out.codes.gpu_types)
        calibration = calibrate(*groups, settings.quantiles, codes, settings.calibration_rows)
        held = _errors(predictor, held_out, target)
        if len(held[0]) >= settings.calibration_rows:
            calibration = levelled(calibration, *held, settings.quantiles)
        offsets[target] = calibration.offsets.tolist()
    return offsets


def _errors(
    predictor: ResidualPredictor, samples: Samples, target: str
) -> tuple[FloatArray, BoolArray, FloatArray, FloatArray, FloatArray]:
    """Log errors, censoring, GPU code, queue depth and weight of the rows that tell something of the target."""
    part = target_rows(samples, target)
    predicted: FloatArray = getattr(predictor.predict(part.features), target)
    errors = np.log(part.value)[:, None] - np.log(predicted)
    gpu, queue = part.features[:, INDEX["gpu_type"]], part.features[:, INDEX["queue_depth"]]
    return errors, part.censored, gpu, queue, part.weight


def _card(facts: StockFacts, fitted: Fitted, settings: TrainingSettings, created_at: str) -> ModelCard:
    import lightgbm

    blank = np.zeros((len(facts.codes.gpu_types) + 1, len(LOAD_BANDS), len(settings.quantiles))).tolist()
    return ModelCard(
        version="",
        created_at=created_at,
        features=NAMES,
        units=tuple(UNITS.values()),
        schema_hash=schema_hash(),
        gpu_types=facts.codes.gpu_types,
        models=facts.codes.models,
        roles=fitted.roles,
        quantiles=settings.quantiles,
        base={target: fitted.targets[target].base for target in TARGETS},
        low=fitted.low,
        high=fitted.high,
        clamp=fitted.clamp,
        offsets=dict.fromkeys(TARGETS, blank),
        prior=asdict(settings.prior),
        data={
            "rows": len(facts.run),
            "censored": facts.censored,
            "runs": len(np.unique(facts.run)),
            "since_s": float(facts.decided_s.min()),
            "until_s": float(facts.decided_s.max()),
            "left_out": facts.dropped,
        },
        boost=asdict(settings.boost) | {"calibration_rows": settings.calibration_rows},
        libraries={"lightgbm": lightgbm.__version__, "numpy": np.__version__},
        importance={target: fitted.targets[target].gain for target in TARGETS},
    )


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
