"""Drift: whether a latency model's recent errors on a GPU type and load band have left what it promised.

Each group (GPU type, load band) and target keeps a window of errors ``e = log(observed / predicted median)`` and
of hits of the upper quantile. With ``n`` the effective size of the window (Kish: ``(Σw)² / Σw²``), ``m(p)`` its
weighted ``p``-quantile of ``e`` and ``c`` the covered share, a group drifts when the evidence is beyond chance:

(1)  ``m(1/2 − z/(2√n)) > log limit``  or  ``m(1/2 + z/(2√n)) < −log limit``    the median is off
(2)  ``c + z·√(c(1 − c)/n) < level − coverage_limit``                            the upper quantile does not hold

The bounds of (1) are the usual order statistics around a median. Back again needs the estimates themselves within
the narrower ``bias_recover`` and ``coverage_recover``, so that a group on the border does not flap. Another model
version starts with empty windows.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import numpy as np

from data.errors import SettingError
from data.types import FloatArray, IntArray
from models.base import BoolArray, CategoryCodes
from models.calibration import LOAD_BANDS

TARGETS = ("ttft_s", "tpot_s")
_BANDS = len(LOAD_BANDS)


class DriftState(enum.StrEnum):
    """What is known of a group."""

    OK = "ok"
    DRIFTED = "drifted"
    NOT_ENOUGH_DATA = "not enough data"


@dataclass(frozen=True, slots=True)
class DriftSettings:
    """When a group counts as drifted, and when as back.

    Attributes:
        window: Newest outcomes of each group and target that count (10 to 100,000).
        max_age_s: ... unless they were decided this long before the newest of all (> 0).
        least: Effective outcomes below which nothing is concluded (5 to ``window``).
        bias_limit: Factor between observed and predicted median, either way, beyond which a group drifts (> 1).
        bias_recover: Factor within which it is back (1 to ``bias_limit``).
        coverage_limit: Shortfall of the upper quantile's coverage beyond which a group drifts (above 0, below 1).
        coverage_recover: Shortfall within which it is back (0 to ``coverage_limit``).
        certainty: ``z`` of (1) and (2), standard errors (0 to 6).
    """

    window: int = 256
    max_age_s: float = 1800.0
    least: float = 30.0
    bias_limit: float = 1.3
    bias_recover: float = 1.2
    coverage_limit: float = 0.2
    coverage_recover: float = 0.1
    certainty: float = 3.0

    def __post_init__(self) -> None:
        checks = (
            ("window", 10 <= self.window <= 100_000, "10 to 100,000"),
            ("max_age_s", self.max_age_s > 0, "above 0"),
            ("least", 5 <= self.least <= self.window, "5 to window"),
            ("bias_limit", 1.0 < self.bias_limit < math.inf, "above 1"),
            ("bias_recover", 1.0 <= self.bias_recover <= self.bias_limit, "1 to bias_limit"),
            ("coverage_limit", 0.0 < self.coverage_limit < 1.0, "above 0, below 1"),
            ("coverage_recover", 0.0 <= self.coverage_recover <= self.coverage_limit, "0 to coverage_limit"),
            ("certainty", 0.0 <= self.certainty <= 6.0, "0 to 6"),
        )
        for name, ok, expected in checks:
            if not ok:
                value = getattr(self, name)
                raise SettingError("setting out of range", field=name, value=value, expected=expected)


@dataclass(frozen=True, slots=True)
class ErrorBatch:
    """Outcomes of one target joined with what one model version predicts for them; arrays of shape (rows,).

    Attributes:
        target: Position in ``TARGETS``.
        gpu_code: Code of the GPU type; rows of an unknown type (−1) are not watched, the prior serves them anyway.
        band: Load band.
        decided_s: Decision clock.
        log_ratio: Logarithm of observed, or its lower bound, over the predicted median.
        covered: 1 at or below the upper quantile, 0 above it, NaN where a bound leaves it open.
        weight: Weight, above 0.
    """

    target: int
    gpu_code: IntArray
    band: IntArray
    decided_s: FloatArray
    log_ratio: FloatArray
    covered: FloatArray
    weight: FloatArray


@dataclass(frozen=True, slots=True)
class GroupDrift:
    """One group and target as it stands; ``bias`` is observed over predicted median, NaN without outcomes."""

    gpu_type: str
    band: str
    target: str
    state: DriftState
    outcomes: int
    bias: float
    coverage: float
    since_s: float
    """Decision clock of the newest outcome when the present alarm was raised; NaN while there is none."""


class _Windows:
    """Rings of all groups of one model version; row ``(gpu * bands + band) * targets + target``."""

    def __init__(self, gpu_types: int, window: int) -> None:
        groups = gpu_types * _BANDS * len(TARGETS)
        self.decided_s = np.full((groups, window), -np.inf)
        self.log_ratio = np.zeros((groups, window))
        self.covered = np.full((groups, window), np.nan)
        self.weight = np.zeros((groups, window))
        self.written = np.zeros(groups, dtype=np.int64)
        self.drifted = np.zeros(groups, dtype=bool)
        self.since_s = np.full(groups, np.nan)
        # The last row is for unknown GPU types (code −1) and stays false.
        self.flags = np.zeros((gpu_types + 1, _BANDS), dtype=bool)


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What the window of one group says."""

    outcomes: int
    effective: float
    low: float
    middle: float
    high: float
    coverage: float
    coverage_rows: float


class DriftMonitor:
    """Windows of errors of the serving version. Memory is fixed by the GPU types and the window length.

    Args:
        settings: Windows and limits.
        level: Nominal level of the upper quantile that ``ErrorBatch.covered`` is about.
    """

    def __init__(self, settings: DriftSettings | None = None, level: float = 0.9) -> None:
        self.settings = settings or DriftSettings()
        self.level = level
        self.version: str | None = None
        self.codes = CategoryCodes()
        self.alarms = 0
        """Groups (by target) that were found drifted so far, over all versions."""
        self.recoveries = 0
        """... and that came back without a new version."""
        self.newest_s = -math.inf
        """Decision clock of the newest outcome of this version."""
        self.any_drifted = False
        self._windows = _Windows(0, self.settings.window)

    def follow(self, version: str, codes: CategoryCodes) -> None:
        """Watch this version from now on; another one than before starts afresh, whatever was known."""
        if version == self.version:
            return
        self.version, self.codes = version, codes
        self._windows = _Windows(len(codes.gpu_types), self.settings.window)
        self.any_drifted, self.newest_s = False, -math.inf

    def drifted(self, gpu_code: FloatArray | IntArray, band: IntArray) -> BoolArray:
        """Whether each row's group is drifted in any target; never for a code that is no known GPU type."""
        windows = self._windows
        known = (gpu_code >= 0) & (gpu_code < len(windows.flags) - 1)
        flags: BoolArray = windows.flags[np.where(known, gpu_code, -1).astype(np.int64), band]
        return flags

    def add(self, batch: ErrorBatch) -> None:
        """Take in outcomes of the followed version, in order of their decisions, and judge the groups met."""
        known = (batch.gpu_code >= 0) & (batch.gpu_code < len(self.codes.gpu_types))
        if not known.any():
            return
        self.newest_s = max(self.newest_s, float(batch.decided_s[known].max()))
        group = np.where(known, (batch.gpu_code * _BANDS + batch.band) * len(TARGETS) + batch.target, -1)
        for index in np.unique(group[known]).tolist():
            self._write(index, batch, np.flatnonzero(group == index)[-self.settings.window :])
            self._judge(index)
        self._windows.flags[:-1] = self._windows.drifted.reshape(-1, _BANDS, len(TARGETS)).any(axis=2)
        self.any_drifted = bool(self._windows.drifted.any())

    def groups(self) -> list[GroupDrift]:
        """Every GPU type, load band and target of the followed version that has had an outcome."""
        found = []
        for index in np.flatnonzero(self._windows.written).tolist():
            place, target = divmod(index, len(TARGETS))
            gpu, band = divmod(place, _BANDS)
            evidence = self._evidence(index)
            found.append(
                GroupDrift(
                    gpu_type=self.codes.gpu_types[gpu],
                    band=LOAD_BANDS[band],
                    target=TARGETS[target],
                    state=self._state(index, evidence),
                    outcomes=evidence.outcomes,
                    bias=math.exp(evidence.middle),
                    coverage=evidence.coverage,
                    since_s=float(self._windows.since_s[index]),
                )
            )
        return found

    def _write(self, index: int, batch: ErrorBatch, rows: IntArray) -> None:
        windows = self._windows
        slots = (windows.written[index] + np.arange(len(rows))) % self.settings.window
        windows.decided_s[index, slots] = batch.decided_s[rows]
        windows.log_ratio[index, slots] = batch.log_ratio[rows]
        windows.covered[index, slots] = batch.covered[rows]
        windows.weight[index, slots] = batch.weight[rows]
        windows.written[index] += len(rows)

    def _evidence(self, index: int) -> _Evidence:
        windows = self._windows
        recent = windows.decided_s[index] > self.newest_s - self.settings.max_age_s
        weight, errors = windows.weight[index, recent], windows.log_ratio[index, recent]
        if not len(errors):
            return _Evidence(0, 0.0, math.nan, math.nan, math.nan, math.nan, 0.0)
        effective = _effective(weight)
        half = min(self.settings.certainty * 0.5 / math.sqrt(effective), 0.5)
        low, middle, high = np.quantile(
            errors, (0.5 - half, 0.5, 0.5 + half), weights=weight, method="inverted_cdf"
        ).tolist()
        hits = windows.covered[index, recent]
        decided = hits == hits  # only a NaN differs from itself
        coverage, rows = math.nan, 0.0
        if decided.any():
            coverage = float(np.average(hits[decided], weights=weight[decided]))
            rows = _effective(weight[decided])
        return _Evidence(len(errors), effective, low, middle, high, coverage, rows)

    def _judge(self, index: int) -> None:
        """Equations (1) and (2); without enough outcomes the group stays what it was."""
        evidence, windows = self._evidence(index), self._windows
        if evidence.effective < self.settings.least:
            return
        if windows.drifted[index]:
            if self._back(evidence):
                windows.drifted[index], windows.since_s[index] = False, math.nan
                self.recoveries += 1
        elif self._off(evidence):
            windows.drifted[index], windows.since_s[index] = True, self.newest_s
            self.alarms += 1

    def _off(self, evidence: _Evidence) -> bool:
        limit = math.log(self.settings.bias_limit)
        if evidence.low > limit or evidence.high < -limit:  # (1)
            return True
        if evidence.coverage_rows < self.settings.least:
            return False
        share = evidence.coverage
        error = self.settings.certainty * math.sqrt(share * (1.0 - share) / evidence.coverage_rows)
        return share + error < self.level - self.settings.coverage_limit  # (2)

    def _back(self, evidence: _Evidence) -> bool:
        covers = evidence.coverage >= self.level - self.settings.coverage_recover
        return abs(evidence.middle) <= math.log(self.settings.bias_recover) and covers

    def _state(self, index: int, evidence: _Evidence) -> DriftState:
        if self._windows.drifted[index]:
            return DriftState.DRIFTED
        return DriftState.OK if evidence.effective >= self.settings.least else DriftState.NOT_ENOUGH_DATA


def _effective(weight: FloatArray) -> float:
    """Kish's effective number of rows."""
    return float(weight.sum() ** 2 / (weight**2).sum())
