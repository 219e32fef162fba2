"""Least-squares fits of step times: non-negative coefficients, relative error minimised.

Relative, because a 2 ms error matters on a 6 ms decode step and not on a 2 s prefill; non-negative, because a
step cannot get faster with more work and the fits are used outside their grid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from data.catalog.types import ServiceTimes
from data.types import FloatArray

SATURATION_BATCHES = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0)
"""Batches tried for the saturating decode term; the best one is kept."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients and the absolute relative error at every point of the fit."""

    coefficients: tuple[float, ...]
    errors: FloatArray

    @property
    def median_error(self) -> float:
        """Median absolute relative error."""
        return float(np.median(self.errors))


@dataclass(frozen=True, slots=True)
class StepFit:
    """Fitted step times of one replica with the errors of both phases."""

    times: ServiceTimes
    prefill: Fit
    decode: Fit


def relative_nnls(columns: list[FloatArray], seconds: FloatArray) -> Fit:
    """Minimise the squared relative error of ``columns @ c`` against ``seconds`` over ``c >= 0``."""
    matrix = np.stack(columns, axis=1)
    coefficients, _ = nnls(matrix / seconds[:, None], np.ones(len(seconds)))
    errors = np.abs(matrix @ coefficients / seconds - 1.0)
    return Fit(tuple(float(c) for c in coefficients), errors)


def fit_prefill(tokens: FloatArray, cached: FloatArray, seconds: FloatArray) -> Fit:
    """``p0 + p1·n + p2·n·(cached + n/2)``."""
    return relative_nnls([np.ones_like(tokens), tokens, tokens * (cached + tokens / 2)], seconds)


def fit_decode(batch: FloatArray, kv_tokens: FloatArray, seconds: FloatArray) -> Fit:
    """``d0 + d1·batch + d2·kv``."""
    return relative_nnls([np.ones_like(batch), batch, kv_tokens], seconds)


def fit_saturating_decode(batch: FloatArray, kv_tokens: FloatArray, seconds: FloatArray) -> tuple[Fit, float]:
    """``d0 + d1·batch + d2·kv + d_sat·(1 − exp(−batch/s))`` and the ``s`` with the least squared error."""
    tries = []
    for scale in SATURATION_BATCHES:
        saturating = 1.0 - np.exp(-batch / scale)
        fit = relative_nnls([np.ones_like(batch), batch, kv_tokens, saturating], seconds)
        tries.append((float(np.mean(fit.errors**2)), scale, fit))
    _, scale, fit = min(tries, key=lambda entry: entry[:2])
    return fit, scale


def fit_steps(prefill: FloatArray, decode: FloatArray, saturating: bool) -> StepFit:
    """Fit both phases of one replica.

    Args:
        prefill: Rows of new tokens, cached tokens, seconds.
        decode: Rows of batch, KV tokens, seconds.
        saturating: Whether the decode step has the saturating term (mixture of experts).
    """
    prefill_fit = fit_prefill(*prefill.T)
    p0, p1, p2 = prefill_fit.coefficients
    if not saturating:
        decode_fit = fit_decode(*decode.T)
        d0, d1, d2 = decode_fit.coefficients
        return StepFit(ServiceTimes(p0, p1, p2, d0, d1, d2), prefill_fit, decode_fit)
    decode_fit, scale = fit_saturating_decode(*decode.T)
    d0, d1, d2, d_sat = decode_fit.coefficients
    times = ServiceTimes(p0, p1, p2, d0, d1, d2, d_sat=d_sat, sat_batch=scale)
    return StepFit(times, prefill_fit, decode_fit)
