"""Splits samples by time and by run, never at random: neighbours in a queue tell each other's latency."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.errors import ModelError, SettingError
from data.types import FloatArray, IntArray
from models.base import BoolArray
from models.samples import Samples

LEAST_ROWS = 50
"""Rows that each part must have."""
GAP_SHARE = 0.05
"""Gap at a cut, at most, as a share of the time before the second cut."""


@dataclass(frozen=True, slots=True)
class SplitSettings:
    """Shares of the samples, in the order of time.

    Attributes:
        fit_share: Oldest part, for the trees (0.2 to 0.9).
        calibrate_share: Next part, for the calibration (0.05 to 0.5); the rest, the newest, is the test window.
        whole_runs_from: With at least this many runs whole runs go to one part; else each run is cut in time.
        gap_s: Rows decided this long before a cut are left out of the older part, but no more than ``GAP_SHARE``
            of what a short run has (>= 0).
    """

    fit_share: float = 0.6
    calibrate_share: float = 0.2
    whole_runs_from: int = 5
    gap_s: float = 5.0

    def __post_init__(self) -> None:
        checks = (
            ("fit_share", 0.2 <= self.fit_share <= 0.9, "0.2 to 0.9"),
            ("calibrate_share", 0.05 <= self.calibrate_share <= 0.5, "0.05 to 0.5"),
            (
                "calibrate_share",
                self.fit_share + self.calibrate_share < 0.96,
                "less than 0.96 with fit_share",
            ),
            ("whole_runs_from", self.whole_runs_from >= 3, "3 or more"),
            ("gap_s", self.gap_s >= 0, "0 or more"),
        )
        for name, ok, expected in checks:
            if not ok:
                raise SettingError(
                    "setting out of range", field=name, value=getattr(self, name), expected=expected
                )


@dataclass(frozen=True, slots=True)
class Split:
    """Three parts, oldest first."""

    fit: Samples
    calibrate: Samples
    test: Samples


def split_samples(samples: Samples, settings: SplitSettings) -> Split:
    """Cut the samples; ``ModelError`` (reason ``data``) if a part has fewer than ``LEAST_ROWS`` rows."""
    return Split(*(samples.take(rows) for rows in split_rows(samples.decided_s, samples.run, settings)))


def split_rows(decided_s: FloatArray, run: IntArray, settings: SplitSettings) -> list[BoolArray]:
    """Masks of the three parts; ``ModelError`` (reason ``data``) if one has fewer than ``LEAST_ROWS`` rows."""
    runs = np.unique(run)
    borders = (settings.fit_share, settings.fit_share + settings.calibrate_share)
    if len(runs) >= settings.whole_runs_from:
        masks = _by_run(run, runs.tolist(), borders)
    else:
        masks = _by_time(decided_s, run, runs.tolist(), borders, settings.gap_s)
    for name, mask in zip(("fit", "calibrate", "test"), masks, strict=True):
        rows = int(mask.sum())
        if rows < LEAST_ROWS:
            message = f"{rows} samples to {name}, at least {LEAST_ROWS} needed; {len(run)} in all"
            raise ModelError(message, reason="data")
    return masks


def _by_run(run: IntArray, runs: list[int], borders: tuple[float, float]) -> list[BoolArray]:
    cuts = [max(round(len(runs) * border), 1) for border in borders]
    cuts = [min(cuts[0], len(runs) - 2), min(max(cuts[1], cuts[0] + 1), len(runs) - 1)]
    groups = (runs[: cuts[0]], runs[cuts[0] : cuts[1]], runs[cuts[1] :])
    return [np.isin(run, group) for group in groups]


def _by_time(
    decided_s: FloatArray, run: IntArray, runs: list[int], borders: tuple[float, float], gap_s: float
) -> list[BoolArray]:
    masks = [np.zeros(len(run), dtype=bool) for _ in range(3)]
    for one in runs:
        mine = run == one
        start, first, second = np.quantile(decided_s[mine], (0.0, *borders))
        # A run of half a minute would lose its calibration part to the full gap.
        gap = min(gap_s, GAP_SHARE * float(second - start))
        masks[0] |= mine & (decided_s < first - gap)
        masks[1] |= mine & (decided_s >= first) & (decided_s < second - gap)
        masks[2] |= mine & (decided_s >= second)
    return masks
