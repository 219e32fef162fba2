"""Fits both targets on one worker's share of the rows: what every training backend runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.types import FloatArray
from models.base import BoolArray, FeatureMatrix
from models.card import TARGETS
from models.features import INDEX, LEARNED
from models.fit_peers import Alone, FitPeers, weighted_quantile
from models.gbm import BoostSettings, TargetFit, fit_target
from models.physics import PriorSettings, prior_times
from models.samples import Samples

CLAMP_SHARE = 0.001
"""Log-ratios beyond this share of the trained ones at each end are not served."""
PRIOR_ROWS = 65_536
"""Rows whose prior is taken at a time: its arrays of work would else outweigh the samples."""


@dataclass(frozen=True, slots=True)
class ShardSettings:
    """What a fit needs to know: levels, prior and forest; see ``models.training.TrainingSettings``."""

    quantiles: tuple[float, ...]
    prior: PriorSettings
    boost: BoostSettings


@dataclass(frozen=True, slots=True)
class Fitted:
    """What came of a fit; the same on every worker.

    Attributes:
        targets: Forests of each target.
        clamp: Least and greatest log-ratio that is served, by target.
        low, high: Least and greatest known value of each learned feature; NaN for one that was never known.
        roles: Role codes that occurred.
    """

    targets: dict[str, TargetFit]
    clamp: dict[str, tuple[float, float]]
    low: tuple[float, ...]
    high: tuple[float, ...]
    roles: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TargetRows:
    """Rows that tell something of one target: its value or lower bound, and their weight."""

    features: FeatureMatrix
    value: FloatArray
    censored: BoolArray
    weight: FloatArray


def fit_shard(samples: Samples, settings: ShardSettings, peers: FitPeers | None = None) -> Fitted:
    """Fit both targets together with the ``peers``, who make the same call with their own rows."""
    peers = peers or Alone()
    targets: dict[str, TargetFit] = {}
    clamp: dict[str, tuple[float, float]] = {}
    for target in TARGETS:
        part = target_rows(samples, target)
        log_ratio = np.log(part.value / _prior_median(part.features, target, settings.prior))
        targets[target] = fit_target(
            part.features, log_ratio, part.censored, part.weight, settings.quantiles, settings.boost, peers
        )
        one = np.ones(len(log_ratio))
        clamp[target] = (
            weighted_quantile(log_ratio, one, CLAMP_SHARE, peers),
            weighted_quantile(log_ratio, one, 1.0 - CLAMP_SHARE, peers),
        )
    low, high, roles = _ranges(samples.features, peers)
    return Fitted(targets, clamp, low, high, roles)


def target_rows(samples: Samples, target: str) -> TargetRows:
    """The rows of one target; a row without first token bounds the TTFT from below."""
    if target == "ttft_s":
        censored = np.isnan(samples.ttft_s)
        value = np.where(censored, samples.ttft_bound_s, samples.ttft_s)
        weight = np.ones(len(samples))
    else:
        censored = np.zeros(len(samples), dtype=bool)
        value, weight = samples.tpot_s, samples.gaps
    rows = ~np.isnan(value)
    if rows.all():  # spares a copy of everything
        return TargetRows(samples.features, value, censored, weight)
    return TargetRows(samples.features[rows], value[rows], censored[rows], weight[rows])


def _prior_median(features: FeatureMatrix, target: str, prior: PriorSettings) -> FloatArray:
    medians = np.empty(len(features))
    for first in range(0, len(features), PRIOR_ROWS):
        rows = slice(first, first + PRIOR_ROWS)
        times = prior_times(features[rows], prior)
        medians[rows] = times.ttft_s if target == "ttft_s" else times.tpot_s
    return medians


def _ranges(
    features: FeatureMatrix, peers: FitPeers
) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
    """Least and greatest known value of each learned feature, and the roles, of all workers."""
    learned = features[:, : len(LEARNED)]
    edges = [peers.gather(reduce.reduce(learned, axis=0, initial=np.nan)) for reduce in (np.fmin, np.fmax)]
    low, high = np.fmin.reduce(edges[0], axis=0), np.fmax.reduce(edges[1], axis=0)
    codes = np.arange(-1.0, 8.0)
    occurred = peers.gather(np.isin(codes, features[:, INDEX["role"]]).astype(np.float64)).any(axis=0)
    return tuple(low.tolist()), tuple(high.tolist()), tuple(codes[occurred].tolist())
