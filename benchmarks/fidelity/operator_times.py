"""Step times of an engine from the times of its single operators, measured one by one on a card.

A step over ``n`` prompt tokens after ``c`` cached ones, beside ``b`` sequences that decode and hold ``kv`` tokens
each, is the sum of its operators: in each layer two norms, the projections, the rotary embedding, the activation
and the attention; around them the embedding, the last norm, the head and the sampler. The catalog's form is then
fitted to these sums by least squares on relative errors. Links between cards are not in the profile: a step of
more than one card is too short by its all-reduces, see :func:`data.catalog.link.link_times`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.csv as csv

from data.catalog.link import Shape
from data.catalog.types import ServiceTimes
from data.types import FloatArray

IN_EACH_LAYER: Mapping[str, int] = {
    "layernorm": 2,
    "qkv_proj": 1,
    "qk_norm": 1,
    "rotary_emb": 1,
    "o_proj": 1,
    "gate_up_proj": 1,
    "act_fn": 1,
    "down_proj": 1,
}
ONCE = ("embedding", "final_layernorm")
BY_SEQUENCE = ("lm_head", "sampler")
MOST_CONTEXT = 4096
"""Points with longer contexts than the replayed requests have are left out of the fit."""
US = 1e-6


@dataclass(frozen=True, slots=True)
class Fitted:
    """Coefficients, and the median relative errors of both fits against the sums."""

    times: ServiceTimes
    prefill_error: float
    decode_error: float


def fitted_times(folder: Path, shape: Shape) -> Fitted:
    """Coefficients from one folder of operator profiles (``attention``, ``dense``, ``per_sequence``)."""
    table = csv.read_csv(folder / "attention.csv.gz")
    chunk, cached, batch, context, attention_us = (
        table.column(name).to_numpy().astype(np.float64) for name in table.column_names
    )
    dense = _curves(folder / "dense.csv.gz", "tokens")
    heads = _curves(folder / "per_sequence.csv.gz", "sequences")
    tokens, sequences = chunk + batch, batch + (chunk > 0)
    layer_us = sum(
        (count * _at(dense[name], tokens) for name, count in IN_EACH_LAYER.items() if name in dense),
        start=attention_us,
    )
    around_us = sum((_at(dense[name], tokens) for name in ONCE), start=np.zeros(len(tokens)))
    around_us = around_us + sum((_at(heads[name], sequences) for name in BY_SEQUENCE), start=np.zeros(len(tokens)))
    step_s = (shape.layers * layer_us + around_us) * US
    near = (cached <= MOST_CONTEXT) & (context <= MOST_CONTEXT)
    prefill, decode = near & (batch == 0) & (chunk > 0), near & (chunk == 0) & (batch > 0)
    (p0, p1, p2), prefill_error = _least_squares(
        [np.ones(len(chunk)), chunk, chunk * (cached + chunk / 2)], step_s, prefill
    )
    (d0, d1, d2), decode_error = _least_squares([np.ones(len(chunk)), batch, batch * context], step_s, decode)
    return Fitted(ServiceTimes(p0, p1, p2, d0, d1, d2), prefill_error, decode_error)


def _curves(path: Path, by: str) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Time in microseconds over tokens or sequences, of each operator."""
    table = csv.read_csv(path)
    names = np.array(table.column("layer").to_pylist())
    at, took = (table.column(name).to_numpy().astype(np.float64) for name in (by, "time_us"))
    found = {}
    for name in dict.fromkeys(names.tolist()):
        own = names == name
        order = np.argsort(at[own])
        found[name] = (at[own][order], took[own][order])
    return found


def _at(curve: tuple[FloatArray, FloatArray], at: FloatArray) -> FloatArray:
    """Linear between points; beyond the last one, in proportion."""
    points, took = curve
    inside = np.interp(at, points, took)
    return np.where(at > points[-1], took[-1] * at / points[-1], inside)


def _least_squares(
    columns: Sequence[FloatArray], value: FloatArray, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> tuple[tuple[float, float, float], float]:
    """Coefficients (0 or more) with the least relative squared error, and the median relative error."""
    from scipy.optimize import nnls

    matrix, wanted = np.stack([column[rows] for column in columns], axis=1), value[rows]
    found, _ = nnls(matrix / wanted[:, None], np.ones(len(wanted)))
    error = float(np.median(np.abs(matrix @ found / wanted - 1.0)))
    return (float(found[0]), float(found[1]), float(found[2])), error
