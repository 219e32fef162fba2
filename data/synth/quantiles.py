"""A distribution told by its quantiles: what public traces publish, and all that is kept of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data.errors import SettingError
from data.types import FloatArray


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Piecewise inverse distribution function through ``(probability, value)`` points.

    Between two points ``log(1 + value)`` is linear in the probability: lengths and times span decades, and 0
    stays possible.

    Attributes:
        points: Probabilities from 0 to 1, strictly rising; values >= 0 that never fall.
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        p, v = np.array(self.points, dtype=np.float64).reshape(-1, 2).T
        rising = len(p) >= 2 and p[0] == 0.0 and p[-1] == 1.0 and bool(np.all(np.diff(p) > 0))
        if not rising:
            raise SettingError("bad quantiles", value=self.points, expected="probabilities rising from 0 to 1")
        if not (np.all(np.isfinite(v)) and v[0] >= 0 and np.all(np.diff(v) >= 0)):
            raise SettingError("bad quantiles", value=self.points, expected="finite values >= 0 that never fall")

    @classmethod
    def of(cls, probabilities: Sequence[float], values: Sequence[float]) -> Quantiles:
        """From probabilities and as many values."""
        return cls(tuple(zip(probabilities, values, strict=True)))

    def at(self, probability: FloatArray) -> FloatArray:
        """Values at these probabilities, each in [0, 1]."""
        p, v = np.array(self.points, dtype=np.float64).T
        values: FloatArray = np.expm1(np.interp(probability, p, np.log1p(v)))
        return values

    def sample(self, rng: np.random.Generator, n: int) -> FloatArray:
        """``n`` independent draws."""
        return self.at(rng.random(n))

    def mean(self) -> float:
        """Mean of the distribution (midpoint rule over 20,000 probabilities)."""
        return float(self.at((np.arange(20_000) + 0.5) / 20_000).mean())


ALWAYS_0 = Quantiles(((0.0, 0.0), (1.0, 0.0)))
ALWAYS_1 = Quantiles(((0.0, 1.0), (1.0, 1.0)))
