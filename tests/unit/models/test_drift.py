"""The drift monitor and the predictor that it guards."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from data.errors import SettingError
from models.base import CategoryCodes, FeatureMatrix, Prediction
from models.drift import DriftMonitor, DriftSettings, DriftState, ErrorBatch
from models.drift_guard import DriftGuarded
from models.features import INDEX, NAMES
from models.physics import PriorPredictor
from models.training import Trained

CODES = CategoryCodes(("A", "B"), ("m@1",))


def batch(log_ratio: Any, gpu: int = 0, band: int = 0, at_s: float = 0.0, covered: Any = 1.0) -> ErrorBatch:
    errors = np.atleast_1d(np.asarray(log_ratio, dtype=float))
    n = len(errors)
    return ErrorBatch(
        target=0,
        gpu_code=np.full(n, gpu),
        band=np.full(n, band),
        decided_s=np.full(n, at_s),
        log_ratio=errors,
        covered=np.full(n, covered),
        weight=np.ones(n),
    )


def watching(**settings: Any) -> DriftMonitor:
    monitor = DriftMonitor(DriftSettings(**settings))
    monitor.follow("v1", CODES)
    return monitor


def state(monitor: DriftMonitor, gpu_type: str = "A", band: str = "idle") -> DriftState:
    return next(group.state for group in monitor.groups() if (group.gpu_type, group.band) == (gpu_type, band))


def test_f069_states_of_a_group() -> None:
    monitor = watching(window=100, least=30)
    noise = np.random.default_rng(1).normal(0, 0.2, 100)
    monitor.add(batch(noise[:20]))
    assert state(monitor) is DriftState.NOT_ENOUGH_DATA
    monitor.add(batch(noise))
    assert state(monitor) is DriftState.OK
    monitor.add(batch(noise + math.log(1.6), covered=0.0))
    assert state(monitor) is DriftState.DRIFTED
    assert monitor.any_drifted
    assert monitor.drifted(np.array([0, 0, 1, -1]), np.array([0, 1, 0, 0])).tolist() == [True, False, False, False]


def test_few_large_errors_are_no_evidence() -> None:
    monitor = watching(least=30)
    monitor.add(batch(np.full(29, 3.0), covered=0.0))
    assert not monitor.any_drifted


def test_too_slow_predictions_drift_too() -> None:
    monitor = watching()
    monitor.add(batch(np.full(100, -math.log(2.0))))
    assert state(monitor) is DriftState.DRIFTED


def test_lost_coverage_alone_is_drift() -> None:
    monitor = watching()
    monitor.add(batch(np.zeros(100), covered=np.arange(100) % 2 == 0))
    assert state(monitor) is DriftState.DRIFTED


def test_coverage_that_is_open_says_nothing() -> None:
    monitor = watching()
    monitor.add(batch(np.zeros(100), covered=math.nan))
    assert state(monitor) is DriftState.OK
    assert math.isnan(monitor.groups()[0].coverage)


def test_hysteresis_between_the_limits() -> None:
    monitor = watching(window=100, bias_limit=1.3, bias_recover=1.1)
    between = np.full(100, math.log(1.2))
    monitor.add(batch(between))
    assert state(monitor) is DriftState.OK
    monitor.add(batch(np.full(100, math.log(1.6))))
    monitor.add(batch(between))
    assert state(monitor) is DriftState.DRIFTED
    monitor.add(batch(np.zeros(100)))
    assert state(monitor) is DriftState.OK
    assert (monitor.alarms, monitor.recoveries) == (1, 1)


def test_f069_another_version_starts_afresh_and_the_same_one_does_not() -> None:
    monitor = watching()
    monitor.add(batch(np.full(100, 1.0)))
    monitor.follow("v1", CODES)
    assert monitor.any_drifted
    monitor.follow("v2", CODES)
    assert not monitor.any_drifted
    assert monitor.groups() == []


def test_old_outcomes_leave_the_window() -> None:
    monitor = watching(max_age_s=60.0)
    monitor.add(batch(np.zeros(200), at_s=0.0))
    monitor.add(batch(np.full(40, 1.0), at_s=100.0))
    group = monitor.groups()[0]
    assert (group.outcomes, group.state, group.since_s) == (40, DriftState.DRIFTED, 100.0)


def test_a_heavy_row_is_not_many_rows() -> None:
    monitor = watching(least=30)
    rows = batch(np.full(40, 1.0))
    monitor.add(
        ErrorBatch(
            0, rows.gpu_code, rows.band, rows.decided_s, rows.log_ratio, rows.covered, np.r_[1e6, np.ones(39)]
        )
    )
    assert not monitor.any_drifted


def test_unknown_gpu_types_are_left_to_the_prior() -> None:
    monitor = watching()
    monitor.add(batch(np.full(100, 1.0), gpu=-1))
    assert monitor.groups() == []
    monitor.add(batch(np.full(100, 1.0)))
    strange = np.array([0.0, 99.0, -7.0, np.nan])
    assert monitor.drifted(strange, np.zeros(4, dtype=int)).tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    "bad",
    [
        {"window": 5},
        {"least": 300},
        {"bias_limit": 1.0},
        {"bias_recover": 1.4},
        {"coverage_limit": 0.0},
        {"coverage_recover": 0.3},
        {"max_age_s": 0.0},
        {"certainty": 7.0},
    ],
)
def test_settings_are_checked(bad: dict[str, float]) -> None:
    with pytest.raises(SettingError, match=next(iter(bad))):
        DriftSettings(**bad)


class Constant:
    """Answers the same times for every row."""

    def __init__(self, version: str, value: float, quantiles: tuple[float, ...] = (0.5, 0.9)) -> None:
        self.version, self.value, self.quantiles = version, value, quantiles
        self.codes = CODES

    def predict(self, features: FeatureMatrix) -> Prediction:
        times = np.full((len(features), len(self.quantiles)), self.value)
        outside = np.zeros(len(features), dtype=bool)
        return Prediction(self.quantiles, times, times, self.version, outside)


def rows(*groups: tuple[int, float]) -> FeatureMatrix:
    features = np.zeros((len(groups), len(NAMES)))
    features[:, INDEX["gpu_type"]] = [gpu for gpu, _ in groups]
    features[:, INDEX["queue_depth"]] = [queue for _, queue in groups]
    return features


@pytest.fixture
def guard() -> DriftGuarded:
    return DriftGuarded(Constant("v1", 1.0), Constant("prior", 2.0), watching())


def test_without_drift_the_answer_is_handed_on(guard: DriftGuarded) -> None:
    answer = guard.predict(rows((0, 0.0)))
    assert type(answer) is Prediction
    assert (guard.version, guard.codes, guard.rows_by_prior) == ("v1", CODES, 0)


def test_f069_the_prior_answers_for_drifted_rows_only(guard: DriftGuarded) -> None:
    guard.monitor.add(batch(np.full(100, 1.0)))
    answer = guard.predict(rows((0, 0.0), (0, 1.0), (1, 0.0), (-1, 0.0)))
    assert answer.ttft_s[:, 0].tolist() == answer.tpot_s[:, 1].tolist() == [2.0, 1.0, 1.0, 1.0]
    assert answer.drifted is not None
    assert answer.drifted.tolist() == [True, False, False, False]
    assert answer.source == "v1+prior"
    assert [answer.row_source(row) for row in (0, 1)] == ["prior", "v1"]
    alone = guard.predict(rows((0, 0.0)))
    assert (alone.source, alone.row_source(0)) == ("prior", "prior")
    assert type(guard.predict(rows((1, 0.0)))) is Prediction
    assert guard.rows_by_prior == 2


def test_f069_a_new_version_serves_at_once(guard: DriftGuarded) -> None:
    guard.monitor.add(batch(np.full(100, 1.0)))
    guard.predictor = Constant("v2", 3.0)
    answer = guard.predict(rows((0, 0.0)))
    assert (answer.source, answer.ttft_s[0, 0]) == ("v2", 3.0)


def test_unlike_quantiles_are_never_mixed() -> None:
    guard = DriftGuarded(Constant("v1", 1.0, (0.5, 0.99)), Constant("prior", 2.0), watching())
    guard.monitor.add(batch(np.full(100, 1.0)))
    answer = guard.predict(rows((0, 0.0), (1, 0.0)))
    assert (answer.source, answer.quantiles) == ("prior", (0.5, 0.9))
    assert answer.ttft_s.shape == (2, 2)


def test_the_prior_can_stand_behind_a_trained_model(toy_model: Trained) -> None:
    model = toy_model.predictor
    monitor = DriftMonitor()
    guard = DriftGuarded(model, PriorPredictor(quantiles=model.quantiles), monitor)
    features = toy_model.test.features
    guard.predict(features)
    monitor.add(batch(np.full(100, 1.0), gpu=0, band=0))
    answer = guard.predict(features)
    assert answer.drifted is not None
    assert 0 < answer.drifted.sum() < len(features)
    np.testing.assert_array_equal(answer.ttft_s[~answer.drifted], model.predict(features).ttft_s[~answer.drifted])
    assert (np.diff(answer.ttft_s, axis=1) >= 0).all()
