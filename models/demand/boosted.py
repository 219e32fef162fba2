"""LightGBM quantile forests trained across all series, one set for near leads and one for the rest."""

from __future__ import annotations

from dataclasses import dataclass

import lightgbm
import numpy as np

from data.errors import ModelError, SettingError
from data.types import FloatArray, IntArray
from models.demand.base import NEAR_LEADS, last_origin, lead_grid, spread_leads
from models.demand.boost_features import LEAST_PAST, Drawn, FeatureSource
from models.demand.history import History

LEAST_ROWS = 500


@dataclass(frozen=True, slots=True)
class BoostedSettings:
    """Size and pace of the forests.

    Attributes:
        trees: Trees of each quantile (1 to 5,000).
        learning_rate: Share of each tree's answer that is taken (above 0, to 1).
        leaves: Leaves of a tree (2 to 1,024).
        least_rows: Rows of a leaf, at least (1 or more).
        sample_rows: Rows drawn for one forest, at most (500 or more).
        seed: Of the draw and of LightGBM.
        threads: OpenMP threads (1 or more); the result does not depend on it.
    """

    trees: int = 120
    learning_rate: float = 0.05
    leaves: int = 6
    least_rows: int = 100
    sample_rows: int = 30_000
    seed: int = 0
    threads: int = 1

    def __post_init__(self) -> None:
        for name, low, high in (
            ("trees", 1, 5000),
            ("learning_rate", 1e-4, 1.0),
            ("leaves", 2, 1024),
            ("least_rows", 1, 10**9),
            ("sample_rows", LEAST_ROWS, 10**8),
            ("seed", 0, 2**31 - 1),
            ("threads", 1, 1024),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise SettingError("out of range", field=name, value=value, expected=f"{low} to {high}")


@dataclass(frozen=True, slots=True)
class Boosted:
    """Gradient boosting on the change from the last value, in units of the recent level.

    Attributes:
        levels: Quantile levels.
        horizon: Leads to be ready for, windows.
        season_s: Length of the season, seconds.
        settings: Size and pace.
    """

    levels: tuple[float, ...]
    horizon: int
    season_s: float = 86_400.0
    settings: BoostedSettings = BoostedSettings()
    name: str = "boosted"

    def fit(self, history: History) -> FittedBoosted:
        """Train on a seeded sample of (series, origin, lead) whose target is known.

        Raises:
            ModelError: Fewer than 500 such rows for the near or the far leads.
        """
        leads = lead_grid(self.horizon)
        source = FeatureSource(history, self.season_s)
        rng = np.random.default_rng(self.settings.seed)
        groups = [part for part in (leads[leads <= NEAR_LEADS], leads[leads > NEAR_LEADS]) if len(part)]
        forests = tuple(self._forests(history, source, part, rng) for part in groups)
        return FittedBoosted(self.season_s, tuple(groups), forests, self.settings.threads)

    def _forests(
        self, history: History, source: FeatureSource, leads: IntArray, rng: np.random.Generator
    ) -> tuple[lightgbm.Booster, ...]:
        series, origin, lead, odds = _draw(history, leads, self.settings.sample_rows, rng)
        drawn = source.rows(series, origin, lead)
        target = (history.values[series, origin + lead] - drawn.last) / drawn.scale
        # The loss counts rates, not relative rates: a row weighs its scale, less what the draw has favoured it by.
        weight = drawn.scale / odds
        data = lightgbm.Dataset(drawn.features, label=target, weight=weight / weight.mean(), free_raw_data=False)
        return tuple(
            lightgbm.train(_params(level, self.settings), data, num_boost_round=self.settings.trees)
            for level in self.levels
        )


@dataclass(frozen=True, slots=True)
class FittedBoosted:
    """Forests by group of leads and level."""

    season_s: float
    groups: tuple[IntArray, ...]
    forests: tuple[tuple[lightgbm.Booster, ...], ...]
    threads: int

    def predict(self, history: History, horizon: int, origins: IntArray | None = None) -> FloatArray:
        """Each forest's quantile at the leads of the grid, drawn out to all leads up to the fit's horizon."""
        at = last_origin(history, origins)
        source = FeatureSource(history, self.season_s)
        parts = []
        for leads, forests in zip(self.groups, self.forests, strict=True):
            shape = (len(history.names), len(at), len(leads))
            series, origin, lead = (
                part.ravel()
                for part in np.broadcast_arrays(
                    np.arange(shape[0])[:, None, None], at[None, :, None], leads[None, None, :]
                )
            )
            drawn = source.rows(series, origin, lead)
            parts.append(self._quantiles(drawn, forests).reshape(*shape, len(forests)))
        return spread_leads(np.concatenate(parts, axis=2), np.concatenate(self.groups), horizon)

    def _quantiles(self, drawn: Drawn, forests: tuple[lightgbm.Booster, ...]) -> FloatArray:
        shifts = [forest.predict(drawn.features, num_threads=self.threads) for forest in forests]
        return drawn.last[:, None] + np.stack(shifts, axis=1) * drawn.scale[:, None]


def _draw(
    history: History, leads: IntArray, count: int, rng: np.random.Generator
) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
    """Rows with a known target, half of them drawn evenly over series and half in proportion to the mean rate.

    Returns:
        Series, origin, lead, and how much more often than evenly the series is drawn.
    """
    level = _means(history.values) + 1e-9
    share = 0.5 / len(level) + 0.5 * level / level.sum()
    width = history.windows - LEAST_PAST - int(leads[0])
    if width < 1:
        raise ModelError(f"{history.windows} windows are too few to boost on", reason="data")
    wanted = min(count, len(level) * width * len(leads))
    series = rng.choice(len(level), size=wanted, p=share)
    origin = LEAST_PAST + rng.integers(width, size=wanted)
    lead = leads[rng.integers(len(leads), size=wanted)]
    inside = origin + lead < history.windows
    series, origin, lead = series[inside], origin[inside], lead[inside]
    known = ~np.isnan(history.values[series, origin + lead]) & ~np.isnan(history.values[series, origin])
    if known.sum() < LEAST_ROWS:
        raise ModelError(f"{int(known.sum())} rows are too few to boost on (least {LEAST_ROWS})", reason="data")
    return series[known], origin[known], lead[known], share[series[known]] * len(level)


def _means(values: FloatArray) -> FloatArray:
    known = ~np.isnan(values)
    return np.asarray(np.where(known, values, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1))


def _params(level: float, settings: BoostedSettings) -> dict[str, object]:
    return {
        "objective": "quantile",
        "alpha": level,
        "learning_rate": settings.learning_rate,
        "num_leaves": settings.leaves,
        "min_data_in_leaf": settings.least_rows,
        "feature_fraction": 0.7,
        "bagging_fraction": 0.7,
        "bagging_freq": 1,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": settings.threads,
        "seed": settings.seed,
        "verbosity": -1,
    }
