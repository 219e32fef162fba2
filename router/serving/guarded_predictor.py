"""A latency predictor that can't hold up decisions: what is slow or fails is replaced by the prior at once.

A predictor starts *on trial*: its calls run on a thread of their own, and a call that takes longer than the limit
is left behind and answered by the prior. After enough good calls in a row it is *trusted* and called directly,
because a change of threads costs as much as the prediction itself. A slow call puts it on trial again; further
ones, or repeated failures, *suspend* it: the prior answers alone until a pause is over, and then a new trial
begins. So at most one decision is late for each time that trust is won; while a call still hangs, no other one is
started.
"""

from __future__ import annotations

import enum
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from models.base import CategoryCodes, FeatureMatrix, LatencyPredictor, Prediction
from router.policies.settings import Checked, above, whole


@dataclass(frozen=True, slots=True)
class GuardSettings(Checked):
    """Limits of a predictor.

    Attributes:
        limit_s: A prediction may take this long.
        trial_calls: Good calls in a row after which it is called directly.
        faults: Slow or failed calls in a row that suspend it.
        pause_s: How long it stays suspended.
    """

    limit_s: float = above(0.0, 0.02)
    trial_calls: int = whole(1, 20)
    faults: int = whole(1, 3)
    pause_s: float = above(0.0, 10.0)


class GuardState(enum.StrEnum):
    """How far the predictor is trusted."""

    ON_TRIAL = "on_trial"
    TRUSTED = "trusted"
    SUSPENDED = "suspended"


class GuardedPredictor:
    """Answers with ``predictor`` while it keeps its limit, else with ``fallback``.

    Args:
        predictor: The model, or the slot that it is swapped in; another version starts a new trial.
        fallback: What answers instead; must be quick and never fail.
        settings: Limits.
        timer: Seconds that only go forward.
    """

    def __init__(
        self,
        predictor: LatencyPredictor,
        fallback: LatencyPredictor,
        settings: GuardSettings | None = None,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.predictor = predictor
        self.fallback = fallback
        self.settings = settings or GuardSettings()
        self.state = GuardState.ON_TRIAL
        self.fell_back = False
        """Whether the fallback gave the latest answer."""
        self.faults: Counter[str] = Counter()
        """Calls that were ``slow``, ``failed``, or ``not_made`` (suspended, or another still hangs)."""
        self._timer = timer
        self._good = 0
        self._bad = 0
        self._until_s = 0.0
        self._version = predictor.version
        self._side = _SideThread()

    @property
    def version(self) -> str:
        """Version of the model."""
        return self.predictor.version

    @property
    def codes(self) -> CategoryCodes:
        """Category codes of the model; the fallback needs none."""
        return self.predictor.codes

    def predict(self, features: FeatureMatrix) -> Prediction:
        """Quantiles for each row within the limit, except for the call that loses the trust."""
        if self.predictor.version != self._version:
            self._version = self.predictor.version
            self._side = _SideThread()  # the old one may hang in the old version
            self._begin_trial()
        started_s = self._timer()
        if self.state is GuardState.SUSPENDED and started_s >= self._until_s:
            self._begin_trial()
        answer = None
        if self.state is GuardState.TRUSTED:
            answer = self._directly(features, started_s)
        elif self.state is GuardState.ON_TRIAL and not self._side.busy:
            answer = self._aside(features)
        else:
            self.faults["not_made"] += 1
        self.fell_back = answer is None
        return self.fallback.predict(features) if answer is None else answer

    def _directly(self, features: FeatureMatrix, started_s: float) -> Prediction | None:
        try:
            answer = self.predictor.predict(features)
        except Exception:
            self._fault("failed")
            return None
        if self._timer() - started_s > self.settings.limit_s:
            self._fault("slow")
        else:
            self._bad = 0
        return answer

    def _aside(self, features: FeatureMatrix) -> Prediction | None:
        # The caller's buffer is used again by the next decision: a call that is left behind must not read it.
        result = self._side.call(self.predictor, features.copy(), self.settings.limit_s)
        if isinstance(result, Prediction):
            self._bad = 0
            self._good += 1
            if self._good >= self.settings.trial_calls:
                self.state = GuardState.TRUSTED
            return result
        self._fault("slow" if result is None else "failed")
        return None

    def _fault(self, kind: str) -> None:
        self.faults[kind] += 1
        self._good = 0
        self._bad += 1
        if self._bad >= self.settings.faults:
            self.state = GuardState.SUSPENDED
            self._until_s = self._timer() + self.settings.pause_s
        elif kind == "slow":
            self.state = GuardState.ON_TRIAL

    def _begin_trial(self) -> None:
        self.state = GuardState.ON_TRIAL
        self._good = self._bad = 0


class _SideThread:
    """Runs one call at a time on a daemon thread, so that a call that never ends can't hold up the exit either."""

    def __init__(self) -> None:
        self.busy = False
        self._thread: threading.Thread | None = None
        self._calls: queue.SimpleQueue[tuple[int, LatencyPredictor, FeatureMatrix]] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[tuple[int, Prediction | Exception]] = queue.SimpleQueue()
        self._number = 0

    def call(
        self, predictor: LatencyPredictor, features: FeatureMatrix, limit_s: float
    ) -> Prediction | Exception | None:
        """The answer or what it raised; ``None`` if it takes longer than the limit. Only while not ``busy``."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tokenfleet-predictor", daemon=True)
            self._thread.start()
        self._number += 1
        self.busy = True
        self._calls.put((self._number, predictor, features))
        until_s = time.monotonic() + limit_s
        while True:
            try:
                number, result = self._results.get(timeout=max(until_s - time.monotonic(), 0.0))
            except queue.Empty:
                return None
            if number == self._number:
                return result

    def _run(self) -> None:
        while True:
            number, predictor, features = self._calls.get()
            result: Prediction | Exception
            try:
                result = predictor.predict(np.ascontiguousarray(features))
            except Exception as error:
                result = error
            self.busy = False
            self._results.put((number, result))
