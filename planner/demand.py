"""Demand as the planner sees it: output tokens/s with quantiles, by model, class, tenant and origin.

Three inputs look alike and mean different things: *no traffic* (a counter that did not move) is a demand of 0,
*no data* (a counter that is absent) holds the plan of that model, and a *counter reset* (it fell) counts from 0.
Nothing that is not finite, and nothing negative, gets past this module.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import NormalDist

import numpy as np

from data.errors import InputError

LEVELS: tuple[float, ...] = (0.2, 0.5, 0.8, 0.95)
"""Quantile levels of every demand; 0.5 is the forecast that shares refer to."""
MEDIAN = LEVELS.index(0.5)
CommodityKey = tuple[str, str, str, str]
"""Model key, workload class, tenant, origin site."""


@dataclass(frozen=True, slots=True)
class DemandRow:
    """Demand of one commodity over the planning window.

    Attributes:
        quantiles: Output tokens/s at ``LEVELS``, never falling, each >= 0 and finite.
        input_tokens, output_tokens: Mean lengths where they were measured, else ``None``.
        input_variation: Standard deviation of prompt lengths over their mean where it was measured, else ``None``.
    """

    model: str
    workload_class: str
    tenant: str
    origin: str
    quantiles: tuple[float, ...]
    input_tokens: float | None = None
    output_tokens: float | None = None
    input_variation: float | None = None

    @property
    def key(self) -> CommodityKey:
        """What identifies the commodity."""
        return self.model, self.workload_class, self.tenant, self.origin

    @property
    def median(self) -> float:
        """The median forecast, output tokens/s."""
        return self.quantiles[MEDIAN]


@dataclass(frozen=True, slots=True)
class DemandTable:
    """All demand of one window.

    Attributes:
        rows: One a commodity, sorted by key.
        missing: Commodities without data: the running replicas of their models are held.
        clamped: Forecast values that had to be clamped to 0 (negative, or not a number).
        notes: What a reader should know: resets, clamps, rows left out and why.
    """

    rows: tuple[DemandRow, ...]
    missing: tuple[CommodityKey, ...] = ()
    clamped: int = 0
    notes: tuple[str, ...] = field(default=())

    def total(self) -> float:
        """Median forecast of everything, output tokens/s."""
        return sum(row.median for row in self.rows)

    def held_models(self) -> frozenset[str]:
        """Models with at least one commodity without data."""
        return frozenset(key[0] for key in self.missing)


class CounterKind(StrEnum):
    """What two samples of a counter say."""

    INCREASED = "increased"
    ZERO = "zero"
    RESET = "reset"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class CounterReading:
    """Rate of a counter over a window; ``per_s`` is ``None`` when there is no data."""

    kind: CounterKind
    per_s: float | None


def read_counter(first: float | None, last: float | None, window_s: float) -> CounterReading:
    """Rate of a monotonic counter from its samples at both ends of a window.

    Args:
        first, last: Samples (>= 0); ``None`` or not finite = the series was absent then.
        window_s: Seconds between them (> 0).

    Raises:
        InputError: A negative sample, or an empty window.
    """
    if not window_s > 0:
        raise InputError("window has no length", field="window_s", value=window_s, expected="seconds above 0")
    if first is None or last is None or not math.isfinite(first) or not math.isfinite(last):
        return CounterReading(CounterKind.MISSING, None)
    if first < 0 or last < 0:
        raise InputError("counter below 0", field="counter", value=min(first, last), expected="0 or more")
    if last < first:
        return CounterReading(CounterKind.RESET, last / window_s)
    if last == first:
        return CounterReading(CounterKind.ZERO, 0.0)
    return CounterReading(CounterKind.INCREASED, (last - first) / window_s)


def clamp_forecast(values: Sequence[float]) -> tuple[tuple[float, ...], int]:
    """A forecast that can be planned with: finite, >= 0, never falling; and how many values were clamped to 0.

    Only a value below 0 or not a number counts as clamped; +inf is refused because no clamp of it is honest.
    """
    clean: list[float] = []
    clamped = 0
    for value in values:
        if value == math.inf:
            raise InputError("forecast is infinite", field="quantiles", value=value, expected="a finite rate")
        usable = math.isfinite(value) and value >= 0
        clamped += not usable
        clean.append(max(value if usable else 0.0, clean[-1] if clean else 0.0))
    return tuple(clean), clamped


def spread_quantiles(median: float, log_spread: float) -> tuple[float, ...]:
    """Quantiles at ``LEVELS`` of a lognormal demand with this median and standard deviation of its logarithm."""
    return tuple(median * math.exp(log_spread * NormalDist().inv_cdf(level)) for level in LEVELS)


def merge_quantiles(rows: Iterable[Sequence[float]], correlation: float = 0.5) -> tuple[float, ...]:
    """Quantiles of a sum of demands whose errors share this correlation (0 to 1).

    Medians add up; the distances from the median add up in full where errors are common and by squares where they
    are independent.
    """
    table = np.array([list(row) for row in rows], dtype=np.float64)
    median = table[:, MEDIAN : MEDIAN + 1]
    off = table - median
    common = off.sum(axis=0)
    own = np.sqrt((off**2).sum(axis=0))
    distance = np.sqrt(correlation * common**2 + (1 - correlation) * own**2)
    total = float(median.sum()) + np.sign(np.array(LEVELS) - 0.5) * distance
    return clamp_forecast(total.tolist())[0]


def demand_table(
    rows: Iterable[DemandRow], missing: Iterable[CommodityKey] = (), notes: Iterable[str] = ()
) -> DemandTable:
    """A table with its forecasts clamped and rows of the same commodity added up."""
    grouped: dict[CommodityKey, list[DemandRow]] = defaultdict(list)
    clamped = 0
    for row in rows:
        quantiles, bad = clamp_forecast(row.quantiles)
        clamped += bad
        key = row.key
        grouped[key].append(replace(row, quantiles=quantiles))
    merged = [
        found[0] if len(found) == 1 else replace(found[0], quantiles=merge_quantiles([r.quantiles for r in found]))
        for found in grouped.values()
    ]
    lines = list(notes)
    if clamped:
        lines.append(f"{clamped} forecast values below 0 or not a number were set to 0 (clamped={clamped})")
    return DemandTable(
        tuple(sorted(merged, key=lambda row: row.key)), tuple(sorted(set(missing))), clamped, tuple(lines)
    )
