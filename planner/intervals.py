"""Means over seeds with 95 % t-intervals, plain and paired.

Runs of two policies with the same seed see the same arrivals, lengths, noise and failures (common random numbers).
Their difference, seed by seed, then varies far less than the two means, and its interval is the one that counts.
Maths: Student's t with n − 1 degrees of freedom over n independent replications (Law, *Simulation Modeling and
Analysis*, sections 9.4 and 10.2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
MIN_SEEDS = 5
"""With fewer seeds no interval is given: one odd run would decide it."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds and its interval.

    Attributes:
        mean: Mean of the usable values; NaN when there are none.
        half_width: Half of the 95 % interval; ``None`` = too few values for one.
        count: Values used. Runs in which the figure was not measured (NaN) are left out.
    """

    mean: float
    half_width: float | None
    count: int

    @property
    def low(self) -> float | None:
        """Lower end of the interval, or ``None``."""
        return None if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float | None:
        """Upper end of the interval, or ``None``."""
        return None if self.half_width is None else self.mean + self.half_width

    @property
    def excludes_zero(self) -> bool:
        """Whether an interval exists and lies wholly on one side of zero."""
        return self.half_width is not None and abs(self.mean) > self.half_width


def estimate(values: Sequence[float], min_count: int = MIN_SEEDS) -> Estimate:
    """Mean of ``values`` with its 95 % t-interval; no interval below ``min_count`` (at least 2) finite values."""
    usable = [value for value in values if math.isfinite(value)]
    count = len(usable)
    if count == 0:
        return Estimate(math.nan, None, 0)
    mean = math.fsum(usable) / count
    if count < max(min_count, 2):
        return Estimate(mean, None, count)
    variance = math.fsum((value - mean) ** 2 for value in usable) / (count - 1)
    return Estimate(mean, t_quantile(count - 1) * math.sqrt(variance / count), count)


def paired_difference(values: Sequence[float], reference: Sequence[float], min_count: int = MIN_SEEDS) -> Estimate:
    """Mean of ``values[i] − reference[i]`` with its interval; index ``i`` is the same seed in both."""
    pairs = zip(values, reference, strict=True)
    return estimate([value - base for value, base in pairs], min_count)


def paired_relative_difference(
    values: Sequence[float], reference: Sequence[float], min_count: int = MIN_SEEDS
) -> Estimate:
    """Mean of ``values[i] / reference[i] − 1`` with its interval; seeds whose reference is 0 are left out."""
    pairs = zip(values, reference, strict=True)
    return estimate([value / base - 1.0 if base else math.nan for value, base in pairs], min_count)


def t_quantile(degrees_of_freedom: int, confidence: float = CONFIDENCE) -> float:
    """Two-sided quantile of Student's t: 97.5 % point for a 95 % interval."""
    from scipy.stats import t  # slow to import, and most commands never need it

    return float(t.ppf(0.5 + confidence / 2, degrees_of_freedom))
