"""Which forecaster serves which series: the one that lost least on the back-test, if it beats the baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.types import FloatArray
from models.base import BoolArray
from models.demand.backtest import Backtest

BASELINE = "persistence"
"""Who serves where nobody has proved to be better."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The winners.

    Attributes:
        bands: Leads (first, last) of each band, windows.
        winner: Name by (series, band).
        loss: Shape (candidates, series, bands): weighted quantile loss on the part that was chosen on; NaN where
            nothing was observed.
        held_out: The same on the part that was held out.
        refused: Number of (series, band) whose best candidate did not beat the baseline on the held-out part.
    """

    bands: tuple[tuple[int, int], ...]
    winner: tuple[tuple[str, ...], ...]
    loss: FloatArray
    held_out: FloatArray
    refused: int


def choose(
    test: Backtest,
    bands: tuple[tuple[int, int], ...],
    known_windows: int,
    held_from: int,
    baseline: str = BASELINE,
) -> Choice:
    """Pick by (series, band).

    Args:
        test: Losses.
        bands: Leads (first, last), each band with a winner of its own.
        known_windows: Only targets before this window count: what came later is not known yet.
        held_from: Origins of fits at this window count or later are held out from the choice and decide whether
            the best of the others beats the baseline.
        baseline: Name of who serves where nobody has proved to be better: the last value, unless told otherwise.
    """
    lead = np.arange(1, test.losses.shape[3] + 1)
    known = test.origins[:, None] + lead[None, :] < known_windows
    held = test.fitted >= held_from
    picked, picked_over = _losses(test, known, ~held, bands)
    checked, checked_over = _losses(test, known, held, bands)
    base = test.names.index(baseline)
    scores = _scores(picked, base)
    best = scores.argmin(axis=0)
    rows, columns = np.indices(best.shape)
    other = (best != base) & (scores[best, rows, columns] < 1.0)
    proved = _scores(checked, base)[best, rows, columns] < 1.0
    final = np.where(other & proved, best, base)
    winner = tuple(tuple(test.names[int(one)] for one in row) for row in final)
    refused = int((other & ~proved).sum())
    return Choice(bands, winner, picked / picked_over, checked / checked_over, refused)


def _scores(loss: FloatArray, base: int) -> FloatArray:
    """Loss relative to the baseline's: the mean of the series' own ratio and that of all series.

    A day or two of one series says little; what its neighbours say steadies it. That of all is their median, so
    that neither the largest nor the idle ones decide. For a single series both agree.
    """
    reference = loss[base]
    some = reference > 0
    own = np.where(some, loss / np.where(some, reference, 1.0), np.where(loss > 0, np.inf, 1.0))
    common = [
        np.median(own[:, some[:, band] if some[:, band].any() else slice(None), band], axis=1)
        for band in range(loss.shape[2])
    ]
    return np.asarray(0.5 * own + 0.5 * np.stack(common, axis=1)[:, None, :])


def _losses(
    test: Backtest, known: BoolArray, origins: BoolArray, bands: tuple[tuple[int, int], ...]
) -> tuple[FloatArray, FloatArray]:
    """Sum of losses by (candidate, series, band), and what was observed: 1 where that is 0, NaN if nothing."""
    losses, over = [], []
    for first, last in bands:
        part = slice(first - 1, last)
        observed = test.observed[:, origins, part]
        use = known[origins, part][None] & ~np.isnan(observed)
        total = np.where(use, observed, 0.0).sum(axis=(1, 2))
        # A series that stood at 0 throughout is compared by its bare loss.
        over.append(np.where(total > 0, total, np.where(use.any(axis=(1, 2)), 1.0, np.nan)))
        losses.append(np.where(use[None], test.losses[:, :, origins, part], 0.0).sum(axis=(2, 3)))
    return np.stack(losses, axis=2), np.stack(over, axis=1)
