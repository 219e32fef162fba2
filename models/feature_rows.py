"""Feature rows of one request at many endpoints, in one compiled pass from the endpoint table's columns.

The same rows as ``models.features.feature_matrix`` builds from ``observe``; array by array they took a quarter of
a decision.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TypeAlias

import numpy as np

from data.types import FloatArray, IntArray
from models.base import FeatureMatrix
from models.features import INDEX
from models.jit import compiled
from models.signals import Fading, LoadColumns, Signals, put_signals

AskedTokens: TypeAlias = tuple[float, float, float]
"""Input tokens, output budget and expected output tokens of a request."""
_SIGNALS = np.array([INDEX[field.name] for field in fields(Signals)])
_FIXED, _HIT = INDEX["gpu_type"], INDEX["hit_tokens"]
"""Places in a row; arguments of the compiled code, which would not notice that they moved."""


RowArguments: TypeAlias = tuple[
    AskedTokens, IntArray, FloatArray, float, Fading, LoadColumns, FloatArray, IntArray, int, int, FeatureMatrix
]
"""Arguments of :func:`put_rows`."""


def row_arguments(
    asked: AskedTokens,
    rows: IntArray,
    hit_tokens: FloatArray,
    now_s: float,
    fades: Fading,
    columns: LoadColumns,
    hardware: FloatArray,
    out: FeatureMatrix,
) -> RowArguments:
    """What :func:`put_rows` needs to fill ``out`` with the rows of the endpoints ``rows``.

    Args:
        asked: The request.
        rows: Rows of the table, the candidates.
        hit_tokens: Predicted prefix-hit tokens of each candidate.
        now_s: The clock.
        fades: How reports fade, see ``models.signals.fading``.
        columns: Of the table, see ``models.signals.load_columns``.
        hardware: Fixed columns of every row of the table, see ``models.features.hardware_rows``.
        out: Shape (candidates, features).
    """
    return asked, rows, hit_tokens, now_s, fades, columns, hardware, _SIGNALS, _FIXED, _HIT, out


@compiled
def put_rows(
    asked: AskedTokens,
    rows: IntArray,
    hit_tokens: FloatArray,
    now_s: float,
    fades: Fading,
    columns: LoadColumns,
    hardware: FloatArray,
    signals: IntArray,
    fixed: int,
    hit: int,
    out: FeatureMatrix,
) -> None:
    """Fill ``out`` with one row for each candidate; see :func:`row_arguments`."""
    put_signals(rows, now_s, fades, columns, signals, out)
    input_tokens, output_budget, expected_tokens = asked
    for place in range(len(rows)):
        values, kind = out[place], hardware[rows[place]]
        values[0], values[1] = input_tokens, input_tokens - hit_tokens[place]
        values[2], values[3] = output_budget, expected_tokens
        values[hit] = hit_tokens[place]
        for offset in range(len(kind)):
            values[fixed + offset] = kind[offset]
