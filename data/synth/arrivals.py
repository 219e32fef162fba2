"""When sessions start: a renewal process whose clock runs with the demand.

Gaps are drawn with mean 1 in *operational* time; a start at operational time ``u`` happens at the real time ``t``
with ``Λ(t) = u``, where ``Λ`` is the integral of the rate. The rate is piecewise constant: a mean, times the hour
of day, times a random level (which makes the process doubly stochastic), times a hot spell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from data.errors import SettingError
from data.synth.quantiles import Quantiles
from data.types import FloatArray

GRID_S = 60.0
"""Width of a piece of the daily curve, seconds."""


@dataclass(frozen=True, slots=True)
class Gaps:
    """Law of the gaps between starts, by its shape alone: the mean is always 1.

    Attributes:
        cv: Coefficient of variation of Gamma gaps; 1 = Poisson process (0.05 to 50).
        shape: Measured shape instead of a Gamma; only its form counts, it is divided by its mean.
    """

    cv: float = 1.0
    shape: Quantiles | None = None

    def __post_init__(self) -> None:
        if not 0.05 <= self.cv <= 50:
            raise SettingError("setting out of range", field="cv", value=self.cv, expected="0.05 to 50")

    def draw(self, rng: np.random.Generator, n: int) -> FloatArray:
        """``n`` gaps with mean 1."""
        if self.shape is not None:
            return self.shape.sample(rng, n) / self.shape.mean()
        k = self.cv**-2
        return rng.gamma(k, 1 / k, n)


POISSON = Gaps()


@dataclass(frozen=True, slots=True)
class Levels:
    """Markov-modulated rate: it jumps between levels, each held for an exponential time.

    Attributes:
        levels: Relative rates (>= 0, not all 0); they are scaled to mean 1.
        dwell_s: Mean time at one level (> 0). The next level is any other one with equal chance.
    """

    levels: tuple[float, ...]
    dwell_s: float

    def __post_init__(self) -> None:
        if len(self.levels) < 2 or min(self.levels) < 0 or max(self.levels) <= 0:
            raise SettingError("bad levels", value=self.levels, expected="two or more rates >= 0, not all 0")
        if not self.dwell_s > 0:
            raise SettingError("setting out of range", field="dwell_s", value=self.dwell_s, expected="above 0")

    def path(self, rng: np.random.Generator, since_s: float, until_s: float) -> tuple[FloatArray, FloatArray]:
        """Jump times (the first is ``since_s``) and the level from each on; a longer path begins the same."""
        scaled = np.array(self.levels) / np.mean(self.levels)
        times = [since_s]
        states = [int(rng.integers(len(scaled)))]
        while times[-1] < until_s:
            times.append(times[-1] + float(rng.exponential(self.dwell_s)))
            states.append((states[-1] + 1 + int(rng.integers(len(scaled) - 1))) % len(scaled))
        return np.array(times), scaled[states]


@dataclass(frozen=True, slots=True)
class Diurnal:
    """Daily curve ``exp(κ cos(2π (t − peak) / period)) / I0(κ)``: mean 1, any peak.

    Attributes:
        peak_over_mean: Height of the peak (1 = flat, at most 10). ServeGen's tiers show 1.4 to 2.8.
        peak_at_s: When the peak stands, seconds from the start of the trace.
        period_s: Length of the day (> 0).
    """

    peak_over_mean: float = 2.0
    peak_at_s: float = 50_400.0
    period_s: float = 86_400.0

    def __post_init__(self) -> None:
        for name, ok, expected in (
            ("peak_over_mean", 1 <= self.peak_over_mean <= 10, "1 to 10"),
            ("period_s", self.period_s > 0, "above 0"),
        ):
            if not ok:
                value = getattr(self, name)
                raise SettingError("setting out of range", field=name, value=value, expected=expected)

    def at(self, time_s: FloatArray) -> FloatArray:
        """Rate relative to the mean."""
        kappa = self._concentration()
        angle = 2 * np.pi * (time_s - self.peak_at_s) / self.period_s
        curve: FloatArray = np.exp(kappa * np.cos(angle)) / np.i0(kappa)
        return curve

    def _concentration(self) -> float:
        """Solve ``exp(κ) / I0(κ) = peak_over_mean`` by bisection; the left side rises with κ."""
        low, high = 0.0, 700.0
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if np.exp(middle) < self.peak_over_mean * np.i0(middle) else (low, middle)
        return low


@dataclass(frozen=True, slots=True)
class HotSpell:
    """A window in which the sessions of one origin start ``factor`` times as often."""

    origin: str
    since_s: float
    until_s: float
    factor: float

    def __post_init__(self) -> None:
        if not self.until_s > self.since_s:
            raise SettingError(
                "setting out of range", field="until_s", value=self.until_s, expected="after since_s"
            )
        if not self.factor >= 0:
            raise SettingError("setting out of range", field="factor", value=self.factor, expected="0 or more")


@dataclass(frozen=True, slots=True)
class Rate:
    """Piecewise-constant rate of starts: ``rate_per_s[i]`` holds from ``edges_s[i]`` to ``edges_s[i + 1]``."""

    edges_s: FloatArray
    rate_per_s: FloatArray

    def starts(self, gaps: Gaps, rng: np.random.Generator, chunk: int) -> Iterator[FloatArray]:
        """Start times in order, ``chunk`` at a time; those past the last edge are infinite and end it.

        Chunks are always full: whatever is drawn for each start stays the same when the trace is made longer.
        """
        cumulative = np.concatenate([[0.0], np.cumsum(np.diff(self.edges_s) * self.rate_per_s)])
        clock = 0.0
        while clock < cumulative[-1]:
            operational = clock + np.cumsum(gaps.draw(rng, chunk))
            clock = float(operational[-1])
            yield np.where(operational < cumulative[-1], self._real(operational, cumulative), np.inf)

    def _real(self, operational: FloatArray, cumulative: FloatArray) -> FloatArray:
        """Real time of operational times, from the left edge of the piece they fall in."""
        last = len(self.rate_per_s) - 1
        piece = np.clip(np.searchsorted(cumulative, operational, side="right") - 1, 0, last)
        inside: FloatArray = (operational - cumulative[piece]) / np.maximum(self.rate_per_s[piece], 1e-300)
        return self.edges_s[piece] + inside


def build_rate(
    mean_per_s: float,
    since_s: float,
    until_s: float,
    *,
    diurnal: Diurnal | None = None,
    levels: Levels | None = None,
    hot: tuple[HotSpell, ...] = (),
    rng: np.random.Generator,
) -> Rate:
    """The rate of starts over ``[since_s, until_s]``; ``rng`` draws the random levels only."""
    ends = np.array([since_s, until_s])
    edges = [ends]
    if diurnal is not None:
        edges.append(np.arange(np.floor(since_s / GRID_S), np.ceil(until_s / GRID_S) + 1) * GRID_S)
    if levels is not None:
        jumps, held = levels.path(rng, since_s, until_s)
        edges.append(jumps)
    edges += [np.array([spell.since_s, spell.until_s]) for spell in hot]
    grid = np.unique(np.concatenate(edges))
    grid = grid[(grid >= since_s) & (grid <= until_s)]
    left = grid[:-1]
    rate = np.full(len(left), mean_per_s)
    if diurnal is not None:
        rate *= diurnal.at((np.floor(left / GRID_S) + 0.5) * GRID_S)
    if levels is not None:
        rate *= held[np.searchsorted(jumps, left, side="right") - 1]
    for spell in hot:
        rate[(left >= spell.since_s) & (left < spell.until_s)] *= spell.factor
    return Rate(grid, rate)
