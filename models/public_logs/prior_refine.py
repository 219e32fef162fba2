"""Fits the prior's step times to queued rows too, by robust least squares on log time through the prior itself.

What a public log's engine does with a queue is not known: how many prompts it takes a step, and when its memory or
its slots are full. So besides the step times the fit has two more numbers for each kind of endpoint: the effective
token budget of a step and the effective KV capacity. They replace the nominal ones in the prior's columns.
Of four starts the one with the least cost on the training rows wins.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from data.types import FloatArray
from models.base import BoolArray, FeatureMatrix
from models.features import INDEX
from models.physics import PriorSettings, prior_times
from models.public_logs.prior_fit import LEAST_ROWS, fit_prior, with_prior
from models.samples import Samples

_RANGES = {
    "p0": (1e-4, 10.0),
    "p1": (1e-8, 1.0),
    "p2": (1e-13, 1e-4),
    "d0": (1e-4, 10.0),
    "d1": (1e-8, 1.0),
    "d2": (1e-11, 1e-2),
    "batch_token_budget": (16.0, 1e5),
    "kv_capacity_tokens": (100.0, 1e9),
}
"""Bounds of each number, in the units of ``models.features``."""
_COLUMNS = tuple(INDEX[name] for name in _RANGES)
_LOW, _HIGH = (np.log([bound[side] for bound in _RANGES.values()]) for side in (0, 1))
_LEAST_START = np.array([1e-4, 1e-6, 1e-13, 1e-4, 1e-5, 1e-9, 16.0, 100.0])
"""A number that starts at its bound would stay there."""
_SHIFTS = tuple(np.array([0.0] * 6 + [step, memory]) for step in (0.0, -2.0) for memory in (0.0, -1.0))
"""Several starts, as the fit has local optima: nominal budget and capacity, and smaller ones (in logarithms)."""
MOST_ROWS = 1500
"""Rows of a kind that are used, drawn at random; more move the fit by less than its own error."""
SOFT = 0.2
"""Error of log time beyond which a row pulls linearly, not by its square."""


def fitted_prior(samples: Samples, train: BoolArray, settings: PriorSettings, seed: int = 0) -> Samples:
    """All samples with step times fitted on the rows ``train`` alone.

    Kinds with fewer than ``LEAST_ROWS`` training rows keep what ``prior_fit`` borrowed for them. Rows whose step
    times the catalog knew are left as they are.

    Raises:
        ModelError: No training row has a TTFT (reason ``data``).
    """
    unknown = np.isnan(samples.features[:, INDEX["p0"]])
    if not unknown.any():
        return samples
    known = with_prior(samples, fit_prior(samples.take(train & unknown)))
    features = known.features.copy()
    kinds = features[:, [INDEX["gpu_type"], INDEX["model"], INDEX["gpus"]]]
    for kind in np.unique(kinds[unknown], axis=0):
        rows = unknown & (kinds == kind).all(axis=1)
        mine = np.flatnonzero(rows & train)
        if len(mine) >= LEAST_ROWS:
            chosen = np.random.default_rng(seed).permutation(mine)[:MOST_ROWS]
            features[rows] = _applied(features[rows], _refine(known.take(chosen), settings))
    return replace(known, features=features)


def _refine(samples: Samples, settings: PriorSettings) -> FloatArray:
    """Logarithms of the numbers in ``_RANGES`` that fit one kind best."""
    from scipy.optimize import least_squares

    start = np.log(np.maximum(samples.features[0, _COLUMNS], _LEAST_START))
    has_ttft, has_tpot = samples.ttft_s > 0, samples.tpot_s > 0

    def errors(numbers: FloatArray) -> FloatArray:
        times = prior_times(_applied(samples.features, numbers), settings)
        return np.concatenate([
            np.log(samples.ttft_s[has_ttft] / times.ttft_s[has_ttft]),
            np.log(samples.tpot_s[has_tpot] / times.tpot_s[has_tpot]),
        ])  # fmt: skip

    found = [
        least_squares(
            errors,
            np.clip(start + shift, _LOW + 1e-6, _HIGH - 1e-6),
            bounds=(_LOW, _HIGH),
            loss="soft_l1",
            f_scale=SOFT,
            max_nfev=60,
        )
        for shift in _SHIFTS
    ]
    best: FloatArray = min(found, key=lambda one: float(one.cost)).x
    return best


def _applied(features: FeatureMatrix, numbers: FloatArray) -> FeatureMatrix:
    features = features.copy()
    features[:, _COLUMNS] = np.exp(numbers)
    features[:, INDEX["waiting_prefill_s"]] = (
        features[:, INDEX["p1"]] * features[:, INDEX["waiting_prefill_tokens"]]
    )
    return features
