"""The features of the latency models: the only place where their names, units and order exist.

The router builds rows from its endpoint table, training builds them from the log: both call
:func:`feature_matrix`. A saved model carries :func:`schema_hash`; another hash is another meaning of the
columns, and such a model is refused at load.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from data.catalog.types import ServiceTimes
from data.errors import ModelError
from data.types import FloatArray
from models.base import CategoryCodes, FeatureMatrix
from models.signals import Signals

ROLES = ("mixed", "prefill", "decode")
"""Run modes of an engine instance; the code in the ``role`` column is the position here."""

UNITS: dict[str, str] = {
    # the request on this endpoint
    "input_tokens": "tokens",
    "uncached_tokens": "tokens",
    "output_budget": "tokens",
    "expected_output_tokens": "tokens",
    # the endpoint, as far as the router knows it (see models.signals)
    "queue_depth": "requests",
    "waiting_prefill_tokens": "tokens",
    "waiting_prefill_s": "s",
    "prefill_elapsed_s": "s",
    "running": "requests",
    "inflight_tokens": "tokens",
    "kv_use": "share",
    "kv_tokens": "tokens",
    "prefill_load": "share",
    # what the endpoint is
    "gpu_type": "code",
    "gpus": "count",
    "model": "code",
    "role": "code",
    "batch_token_budget": "tokens",
    # inputs of the closed-form prior only; the forest never sees them
    "kv_capacity_tokens": "tokens",
    "p0": "s",
    "p1": "s/token",
    "p2": "s/token^2",
    "d0": "s",
    "d1": "s/request",
    "d2": "s/token",
    "host_overhead": "s",
    "d_sat": "s",
    "sat_batch": "requests",
    # widens the spread; trees would learn from it when all endpoints of a log were scraped
    "metrics_age_s": "s",
    # input minus uncached tokens: left to the prior, so that a forest cannot undo the monotony in uncached tokens
    "hit_tokens": "tokens",
}
NAMES = tuple(UNITS)
INDEX = {name: column for column, name in enumerate(NAMES)}
LEARNED = NAMES[: INDEX["kv_capacity_tokens"]]
"""Features the forest may split on: the leading columns of the matrix."""
RISING = (
    "input_tokens",
    "uncached_tokens",
    "queue_depth",
    "waiting_prefill_tokens",
    "waiting_prefill_s",
    "kv_use",
    "kv_tokens",
    "prefill_load",
)
"""More of one of these never lowers a prediction."""

_FIRST_SIGNAL = INDEX["queue_depth"]
_FIRST_HARDWARE = INDEX["gpu_type"]
_HIT = INDEX["hit_tokens"]
_AGE = INDEX["metrics_age_s"]


@cache
def schema_hash() -> str:
    """Digest over names, units, order, dtype and roles: equal hashes mean equal columns."""
    text = (
        ";".join(f"{name}[{unit}]" for name, unit in UNITS.items()) + f"|float64|{len(LEARNED)}|" + ",".join(ROLES)
    )
    return hashlib.sha256(text.encode()).hexdigest()


def check_schema(names: Sequence[str], units: Sequence[str]) -> None:
    """Raise ``ModelError`` (reason ``schema``) naming the first column that differs from this build's."""
    for position, (name, unit) in enumerate(UNITS.items()):
        if position >= len(names) or names[position] != name:
            found = names[position] if position < len(names) else "nothing"
            raise ModelError(f"feature column {position} should be {name!r}, found {found!r}", reason="schema")
        if units[position] != unit:
            raise ModelError(f"feature {name!r} should be in {unit}, found {units[position]}", reason="schema")
    if len(names) > len(NAMES):
        raise ModelError(f"unknown feature column {names[len(NAMES)]!r}", reason="schema")


@dataclass(frozen=True, slots=True)
class EndpointKind:
    """What one endpoint is: everything about it that does not change while it runs."""

    gpu_type: str | None
    gpus: float
    model: str | None
    batch_token_budget: float
    kv_capacity_tokens: float
    times: ServiceTimes
    role: str = "mixed"


def hardware_rows(kinds: Sequence[EndpointKind], codes: CategoryCodes) -> FloatArray:
    """The fixed columns (``gpu_type`` to ``sat_batch``) for each kind; unknown categories get −1."""
    rows = [
        (
            codes.gpu_type(kind.gpu_type),
            kind.gpus,
            codes.model(kind.model),
            float(ROLES.index(kind.role)) if kind.role in ROLES else -1.0,
            kind.batch_token_budget,
            kind.kv_capacity_tokens,
            kind.times.p0,
            kind.times.p1,
            kind.times.p2,
            kind.times.d0,
            kind.times.d1,
            kind.times.d2,
            kind.times.host_overhead,
            kind.times.d_sat,
            kind.times.sat_batch,
        )
        for kind in kinds
    ]
    return np.array(rows, dtype=np.float64).reshape(len(rows), _AGE - _FIRST_HARDWARE)


def feature_matrix(
    input_tokens: FloatArray | float,
    hit_tokens: FloatArray,
    output_budget: FloatArray | float,
    signals: Signals,
    hardware: FloatArray,
    out: FeatureMatrix | None = None,
    expected_output_tokens: FloatArray | float = np.nan,
) -> FeatureMatrix:
    """One row for each candidate, columns in the order of ``NAMES``.

    Args:
        input_tokens: Prompt length, one number or one a row.
        hit_tokens: Predicted prefix-hit tokens, shape (rows,).
        output_budget: Bound of the caller on output tokens, one number or one a row.
        signals: What the router knows of each endpoint, shape (rows,) each.
        hardware: Rows of :func:`hardware_rows`.
        out: Buffer of at least ``rows`` rows to fill; without it a new array is made.
        expected_output_tokens: Mean output of the request's class as the router knew it, one number or one a row;
            NaN = unknown.

    Returns:
        C-contiguous float64, shape (rows, len(NAMES)); a view of ``out`` if that was given. The queue's prefill
        seconds, if unknown (NaN), are estimated from its tokens.
    """
    rows = len(hit_tokens)
    matrix = np.empty((rows, len(NAMES))) if out is None else out[:rows]
    matrix[:, 0] = input_tokens
    matrix[:, 1] = input_tokens - hit_tokens
    matrix[:, 2] = output_budget
    matrix[:, 3] = expected_output_tokens
    matrix[:, _HIT] = hit_tokens
    for column, values in enumerate(signals.load(), start=_FIRST_SIGNAL):
        matrix[:, column] = values
    matrix[:, _AGE] = signals.metrics_age_s
    matrix[:, _FIRST_HARDWARE:_AGE] = hardware
    _estimate_waiting_seconds(matrix)
    return matrix


def _estimate_waiting_seconds(matrix: FeatureMatrix) -> None:
    """Logs and tables without the queue's prefill seconds: price its tokens as prompts of at most 8,192."""
    seconds = matrix[:, INDEX["waiting_prefill_s"]]
    unknown = np.isnan(seconds)
    if unknown.any():
        tokens = matrix[unknown, INDEX["waiting_prefill_tokens"]]
        p1, p2 = matrix[unknown, INDEX["p1"]], matrix[unknown, INDEX["p2"]]
        seconds[unknown] = p1 * tokens + p2 * tokens * np.minimum(tokens, 8192.0) / 2
