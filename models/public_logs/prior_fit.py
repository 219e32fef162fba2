"""Step times for hardware that the catalog does not know, from the log's own rows of the training part.

For each GPU type, model and number of GPUs, by non-negative least squares on relative errors:

(1)  ``TPOT        ≈ d0 + d1·(r + 1) + d2·(k + u)``                on all rows with a TPOT
(2)  ``TTFT − fix  ≈ p0 + p1·u + p2·u²/2``                         on rows with an empty queue

with ``u`` prompt tokens, ``r`` running requests, ``k`` KV tokens and ``fix = d1·r + d2·k``, what a mixed step
costs besides. A group with fewer rows than ``LEAST_ROWS`` borrows the fit of its GPU type and model, then of its
GPU type, then of all rows. Where no TPOT is known, (1) is skipped and the decode step is taken as ``p0``.

From there on ``models.public_logs.prior_refine`` fits all rows, queued ones too, by the prior's own equations.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from data.catalog.types import ServiceTimes
from data.errors import ModelError
from data.types import FloatArray
from models.base import BoolArray, FeatureMatrix
from models.features import INDEX
from models.samples import Samples

LEAST_ROWS = 20
"""Rows below which a group borrows."""
EMPTY_QUEUE = 0.5
_GROUPS = tuple(INDEX[name] for name in ("gpu_type", "model", "gpus"))
_LEVELS = (3, 2, 1, 0)
"""Leading group columns that must agree, most particular first."""

PriorTable = dict[tuple[float, ...], ServiceTimes]
"""Step times by (GPU code, model code, GPUs) and by each leading part of that; ``()`` holds those of all rows."""


def fit_prior(samples: Samples) -> PriorTable:
    """Step times of every group of the training rows; ``ModelError`` (reason ``data``) if there is no TTFT."""
    if not (samples.ttft_s > 0).any():
        raise ModelError("no TTFT to fit a prior on", reason="data")
    table: PriorTable = {}
    for level in reversed(_LEVELS):
        keys = samples.features[:, _GROUPS[:level]]
        for key in sorted(set(map(tuple, keys.tolist()))):
            rows = (keys == np.array(key)).all(axis=1)
            found = _fit(samples.take(rows)) if level == 0 or rows.sum() >= LEAST_ROWS else None
            if found is not None:
                table[key] = found
    return table


def with_prior(samples: Samples, table: PriorTable) -> Samples:
    """The samples with fitted step times where theirs are NaN, and the queue's prefill seconds by them."""
    features = samples.features.copy()
    unknown = np.isnan(features[:, INDEX["p0"]])
    columns = slice(INDEX["p0"], INDEX["d2"] + 1)
    for row in np.flatnonzero(unknown).tolist():
        times = _lookup(table, tuple(features[row, _GROUPS].tolist()))
        features[row, columns] = times.p0, times.p1, times.p2, times.d0, times.d1, times.d2
    waiting = features[unknown, INDEX["waiting_prefill_tokens"]]
    features[unknown, INDEX["waiting_prefill_s"]] = features[unknown, INDEX["p1"]] * waiting
    features[unknown, INDEX["host_overhead"]] = 0.0
    features[unknown, INDEX["d_sat"]], features[unknown, INDEX["sat_batch"]] = 0.0, 1.0
    return replace(samples, features=features)


def _lookup(table: PriorTable, key: tuple[float, ...]) -> ServiceTimes:
    return next(table[key[:level]] for level in _LEVELS if key[:level] in table)


def _fit(samples: Samples) -> ServiceTimes | None:
    """The fit of one group; ``None`` if its rows do not tell."""
    u, r, k, queue = (
        samples.features[:, INDEX[name]] for name in ("uncached_tokens", "running", "kv_tokens", "queue_depth")
    )
    d0 = d1 = d2 = 0.0
    has_tpot = samples.tpot_s > 0
    if has_tpot.sum() >= 3:
        design = np.column_stack([np.ones(len(u)), r + 1.0, k + u])
        d0, d1, d2 = _relative_nnls(design[has_tpot], samples.tpot_s[has_tpot])
    idle = _idle(queue, samples.ttft_s)
    if idle is None:
        return None
    rest = np.maximum(samples.ttft_s[idle] - (d1 * r + d2 * k)[idle], 0.1 * samples.ttft_s[idle])
    p0, p1, p2 = _relative_nnls(np.column_stack([np.ones(len(u)), u, u * u / 2])[idle], rest)
    if not has_tpot.any():
        d0 = p0
    return ServiceTimes(p0=p0, p1=p1, p2=p2, d0=d0, d1=d1, d2=d2)


def _idle(queue: FloatArray, ttft_s: FloatArray) -> BoolArray | None:
    """Rows that found an empty queue, or else the least queued tenth; ``None`` without enough of them."""
    known: BoolArray = ttft_s > 0
    if known.sum() < 3:
        return None
    idle: BoolArray = known & (queue < EMPTY_QUEUE)
    if idle.sum() < LEAST_ROWS // 2:
        idle = known & (queue <= np.quantile(queue[known], 0.1))
    return idle


def _relative_nnls(design: FeatureMatrix, seconds: FloatArray) -> tuple[float, float, float]:
    """Non-negative coefficients that fit ``seconds`` in relative terms, with two passes against outliers."""
    from scipy.optimize import nnls

    weight = 1.0 / np.maximum(seconds, 1e-5)
    scale = np.maximum(np.abs(design).max(axis=0), 1e-12)
    coefficients = np.zeros(3)
    for _ in range(3):
        coefficients, _rest = nnls((design / scale) * weight[:, None], seconds * weight)
        error = np.abs((design / scale) @ coefficients / seconds - 1.0)
        weight = 1.0 / np.maximum(seconds, 1e-5) / np.sqrt(np.maximum(error, 0.05))
    a, b, c = (coefficients / scale).tolist()
    return a, b, c
