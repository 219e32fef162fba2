"""Splits samples by time and by run, never at random: neighbours in a queue tell each other's latency."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.errors import ModelError, SettingError
from models.base import BoolArray
from models.samples import Samples

LEAST_ROWS = 50
"""Rows that each part must have."""


@dataclass(frozen=True, slots=True)
class SplitSettings:
    """Shares of the samples, in the order of time.

    Attributes:
        fit_share: Oldest part, for the trees (0.2 to 0.9).
        calibrate_share: Next part, for the calibration (0.05 to 0.5); the rest, the newest, is the test window.
        whole_runs_from: With at least this many runs whole runs go to one part; else each run is cut in time.
        gap_s: Rows decided this long before a cut are left out of the older part (>= 0).
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
    runs = np.unique(samples.run)
    borders = (settings.fit_share, settings.fit_share + settings.calibrate_share)
    if len(runs) >= settings.whole_runs_from:
        masks = _by_run(samples, runs.tolist(), borders)
    else:
        masks = _by_time(samples, runs.tolist(), borders, settings.gap_s)
    parts = [samples.take(mask) for mask in masks]
    for name, part in zip(("fit", "calibrate", "test"), parts, strict=True):
        if len(part) < LEAST_ROWS:
            message = f"{len(part)} samples to {name}, at least {LEAST_ROWS} needed; {len(samples)} in all"
            raise ModelError(message, reason="data")
    return Split(*parts)


def _by_run(samples: Samples, runs: list[int], borders: tuple[float, float]) -> list[BoolArray]:
    cuts = [max(round(len(runs) * border), 1) for border in borders]
    cuts = [min(cuts[0], len(runs) - 2), min(max(cuts[1], cuts[0] + 1), len(runs) - 1)]
    groups = (runs[: cuts[0]], runs[cuts[0] : cuts[1]], runs[cuts[1] :])
    return [np.isin(samples.run, group) for group in groups]


def _by_time(samples: Samples, runs: list[int], borders: tuple[float, float], gap_s: float) -> list[BoolArray]:
    masks = [np.zeros(len(samples), dtype=bool) for _ in range(3)]
    for run in runs:
        mine = samples.run == run
        first, second = np.quantile(samples.decided_s[mine], borders)
        at = samples.decided_s
        masks[0] |= mine & (at < first - gap_s)
        masks[1] |= mine & (at >= first) & (at < second - gap_s)
        masks[2] |= mine & (at >= second)
    return masks
