"""A predictor that is slow, hangs or fails never holds up decisions."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import numpy as np
import pytest

from models.base import CategoryCodes, FeatureMatrix, Prediction
from models.features import NAMES
from models.physics import PriorPredictor
from models.slot import PredictorSlot
from router.serving.guarded_predictor import GuardedPredictor, GuardSettings, GuardState

ROWS = np.ones((3, len(NAMES)))


@dataclass
class Scripted:
    """Waits or fails as told, and says so by its source."""

    version: str = "v1"
    wait: threading.Event | None = None
    takes_s: float = 0.0
    fails: bool = False
    calls: int = 0
    codes: CategoryCodes = field(default_factory=CategoryCodes)
    clock: list[float] = field(default_factory=lambda: [0.0])

    def predict(self, features: FeatureMatrix) -> Prediction:
        self.calls += 1
        self.clock[0] += self.takes_s
        if self.wait is not None:
            self.wait.wait(60)
        if self.fails:
            raise ValueError("no answer")
        times = np.ones((len(features), 1))
        return Prediction((0.5,), times, times, self.version)


def guard(scripted: Scripted, **limits: float) -> GuardedPredictor:
    settings = GuardSettings(**{"limit_s": 0.02, "trial_calls": 3, "faults": 2, "pause_s": 10.0, **limits})  # type: ignore[arg-type]
    return GuardedPredictor(scripted, PriorPredictor(), settings, lambda: scripted.clock[0])


def test_a_predictor_that_hangs_is_answered_by_the_prior_in_time_f123() -> None:
    release = threading.Event()
    scripted = Scripted(wait=release)
    guarded = guard(scripted)
    started = time.monotonic()
    answers = [guarded.predict(ROWS) for _ in range(50)]
    spent_s = time.monotonic() - started
    release.set()
    assert spent_s < 1.0  # fifty answers while one call would have taken a minute
    assert {answer.source for answer in answers} == {"prior"}
    assert guarded.fell_back
    assert scripted.calls == 1
    assert guarded.faults == {"slow": 1, "not_made": 49}


def test_good_calls_win_trust_and_slow_calls_lose_it() -> None:
    scripted = Scripted()
    guarded = guard(scripted, limit_s=30.0)
    for _ in range(3):
        assert guarded.predict(ROWS).source == "v1"
        assert not guarded.fell_back
    assert guarded.state is GuardState.TRUSTED
    scripted.takes_s = 31.0
    assert guarded.predict(ROWS).source == "v1"  # the one late answer
    assert guarded.state is GuardState.ON_TRIAL


def test_a_predictor_that_stays_slow_is_suspended_for_a_while() -> None:
    release = threading.Event()
    scripted = Scripted(wait=release)
    guarded = guard(scripted, faults=1)
    assert guarded.predict(ROWS).source == "prior"
    assert guarded.state is GuardState.SUSPENDED
    release.set()
    scripted.clock[0] += 9.0
    assert guarded.predict(ROWS).source == "prior"
    scripted.clock[0] += 2.0
    guarded.predict(ROWS)
    assert guarded.state is GuardState.ON_TRIAL


def test_a_new_version_does_not_wait_for_the_old_ones_hanging_call() -> None:
    old = Scripted(wait=threading.Event())
    slot = PredictorSlot(old)
    guarded = GuardedPredictor(slot, PriorPredictor(), GuardSettings(limit_s=0.02))
    assert guarded.predict(ROWS).source == "prior"
    slot.reload(lambda: Scripted(version="v2"))
    guarded.settings = GuardSettings(limit_s=30.0)
    assert guarded.predict(ROWS).source == "v2"
    assert old.wait is not None
    old.wait.set()


@pytest.mark.parametrize("trusted", [False, True])
def test_failures_are_answered_by_the_prior_and_suspend(trusted: bool) -> None:
    scripted = Scripted()
    guarded = guard(scripted, limit_s=30.0)
    for _ in range(3 if trusted else 0):
        guarded.predict(ROWS)
    scripted.fails = True
    assert guarded.predict(ROWS).source == "prior"
    assert guarded.fell_back
    assert guarded.state is (GuardState.TRUSTED if trusted else GuardState.ON_TRIAL)
    assert guarded.predict(ROWS).source == "prior"
    assert guarded.state is GuardState.SUSPENDED
    calls = scripted.calls
    guarded.predict(ROWS)
    assert scripted.calls == calls


def test_another_version_begins_a_trial_of_its_own() -> None:
    scripted = Scripted()
    guarded = guard(scripted, limit_s=30.0)
    for _ in range(3):
        guarded.predict(ROWS)
    scripted.version = "v2"
    assert guarded.predict(ROWS).source == "v2"
    assert guarded.state is GuardState.ON_TRIAL
    assert guarded.version == "v2"


def test_a_call_that_is_left_behind_does_not_read_the_next_decisions_rows() -> None:
    seen: list[float] = []

    class Keeps(Scripted):
        def predict(self, features: FeatureMatrix) -> Prediction:
            assert self.wait is not None
            self.wait.wait(60)
            seen.append(float(features[0, 0]))
            return Prediction((0.5,), np.ones((3, 1)), np.ones((3, 1)), "v1")

    release = threading.Event()
    guarded = guard(Keeps(wait=release))
    rows = ROWS.copy()
    guarded.predict(rows)
    rows[:] = 7.0
    release.set()
    deadline = time.monotonic() + 5
    while not seen and time.monotonic() < deadline:
        time.sleep(0.001)
    assert seen == [1.0]
