"""A point rule made into quantiles: by the errors it made on the history, lead by lead.

The errors of each series and lead are divided by a scale that is known when the forecast is made, their empirical
quantiles (with the finite-sample step of split conformal prediction) are kept, and later multiplied by the scale
of the day. With ``Scale.LEVEL`` the scale is the recent level, which is what such intervals usually take; with
``Scale.SPREAD`` it is how much the series moves lately, which widens the interval in restless hours.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

import numpy as np

from data.types import FloatArray, IntArray
from models.demand.base import last_origin, lead_grid, spread_leads
from models.demand.history import History, hold_last
from models.demand.point_rules import FittedRule, PointRule
from models.demand.smoothing import recent_spread, smooth

LEAST_ERRORS = 20
"""A series with fewer errors at a lead borrows the scaled errors of all series."""
LEAST_SCALE = 0.2
"""Least scale of an error, as a share of the series' mean scale."""
DEFAULT_SPREAD = 0.25
"""Standard deviation of the logarithm where there is no error at all to learn from."""


class Scale(StrEnum):
    """What errors are measured in."""

    LEVEL = "level"
    SPREAD = "spread"


@dataclass(frozen=True, slots=True)
class ResidualForecaster:
    """A rule with the quantiles of its own errors.

    Attributes:
        rule: Forecasts a value.
        levels: Quantile levels.
        horizon: Leads to be ready for, windows.
        scale: What errors are measured in.
    """

    rule: PointRule
    levels: tuple[float, ...]
    horizon: int
    scale: Scale = Scale.SPREAD

    @property
    def name(self) -> str:
        """The rule's name; marked where errors are measured in the level."""
        return self.rule.name if self.scale is Scale.SPREAD else f"{self.rule.name}_plain"

    def fit(self, history: History) -> FittedResiduals:
        """Fit the rule and keep its errors' quantiles."""
        leads = lead_grid(self.horizon)
        rule = self.rule.fit(history, leads)
        unit = _scale(history, self.scale)
        # Where a series had not stirred yet, its first burst would count as an error without measure.
        least = np.maximum(LEAST_SCALE * unit.mean(axis=1, keepdims=True), 1e-9)
        unit = np.maximum(unit, least)
        table = np.stack([_error_quantiles(history, rule, int(lead), unit, self.levels) for lead in leads], axis=1)
        return FittedResiduals(rule, self.scale, leads, least, table, self.levels)


@dataclass(frozen=True, slots=True)
class FittedResiduals:
    """The rule and the quantiles of its scaled errors.

    Attributes:
        rule, scale, leads, levels: As fitted.
        least_scale: Shape (series, 1): the scale is never below this.
        errors: Shape (series, leads, levels); NaN = nothing known.
    """

    rule: FittedRule
    scale: Scale
    leads: IntArray
    least_scale: FloatArray
    errors: FloatArray
    levels: tuple[float, ...]

    def predict(self, history: History, horizon: int, origins: IntArray | None = None) -> FloatArray:
        """Points and scaled errors at the leads of the grid, drawn out to all leads up to the fit's horizon."""
        at = last_origin(history, origins)
        unit = np.maximum(_scale(history, self.scale), self.least_scale)[:, at, None]
        normal = np.exp(DEFAULT_SPREAD * np.array([NormalDist().inv_cdf(level) for level in self.levels]))
        found = np.empty((len(history.names), len(at), len(self.leads), len(self.levels)))
        for place, lead in enumerate(self.leads):
            point = self.rule.points(history, int(lead))[:, at, None]
            off = self.errors[:, place][:, None, :]
            found[:, :, place] = np.where(np.isnan(off), point * normal, point + unit * off)
        return spread_leads(found, self.leads, horizon)


def _scale(history: History, scale: Scale) -> FloatArray:
    held = hold_last(history.values)
    return recent_spread(held) if scale is Scale.SPREAD else smooth(held, 18.0)


def _error_quantiles(
    history: History, rule: FittedRule, lead: int, unit: FloatArray, levels: tuple[float, ...]
) -> FloatArray:
    """Shape (series, levels); NaN in every row if no series has an error at this lead."""
    kept = max(history.windows - lead, 0)
    errors = (history.values[:, lead:] - rule.points(history, lead)[:, :kept]) / unit[:, :kept]
    pool = errors[~np.isnan(errors)]
    rows = []
    for row in errors:
        own = row[~np.isnan(row)]
        rows.append(conformal_quantiles(own if len(own) >= LEAST_ERRORS else pool, levels))
    return np.array(rows)


def conformal_quantiles(errors: FloatArray, levels: tuple[float, ...]) -> FloatArray:
    """Empirical quantiles at levels moved outward by ``(n + 1) / n`` for the finite sample; NaN without errors."""
    if not len(errors):
        return np.full(len(levels), np.nan)
    at = 0.5 + (np.array(levels) - 0.5) * (len(errors) + 1) / len(errors)
    return np.asarray(np.quantile(errors, np.clip(at, 0.0, 1.0)))
