"""Training samples: rows of the decision and outcome log as features and targets.

What counts: a completed attempt gives TTFT and, from 2 output tokens on, TPOT. A cancel after the first token
gives the TTFT. A cancel (or a client's time-out) before the first token is a *lower bound* of the TTFT, not a
missing row. Failed and refused attempts and client errors are no latency samples. Every row left out is counted by
reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data.errors import LogError, ModelError
from data.types import FloatArray, IntArray, Status
from models.base import UNKNOWN_CODE, BoolArray, CategoryCodes, FeatureMatrix
from models.features import INDEX, EndpointKind, feature_matrix, hardware_rows
from models.signals import Signals

KindKey = tuple[str, str, int]
"""Model key, GPU type, GPUs of a replica: what the log tells of an endpoint's hardware."""

SIGNALS = tuple(field.name for field in fields(Signals))
NEEDED = (
    "decided_s",
    "status",
    "ttft_s",
    "tpot_s",
    "e2e_s",
    "output_tokens",
    "model",
    "gpu_type",
    "gpus",
    "input_tokens",
    "hit_tokens",
    "output_budget",
    "expected_output_tokens",
    "batch_token_budget",
)


@dataclass(frozen=True, slots=True)
class Samples:
    """Latency samples, one row each, in the order of their decisions within each run.

    Attributes:
        features: Shape (rows, len(NAMES)).
        decided_s: Decision clock.
        run: Number of the run (log folder) that a row comes from; clocks of different runs are unrelated.
        ttft_s: Observed TTFT; NaN where there was no first token.
        ttft_bound_s: Where ``ttft_s`` is NaN: the TTFT was at least this.
        tpot_s: Observed TPOT; NaN where there is none.
        gaps: Output tokens less one, of which the TPOT is the mean; 0 where there is none. They weight TPOT rows:
            its quantiles are over tokens, as Goodput is, and one gap that met a stall tells little of an endpoint.
        codes: Categories of the rows.
        dropped: Rows left out, by reason.
    """

    features: FeatureMatrix
    decided_s: FloatArray
    run: IntArray
    ttft_s: FloatArray
    ttft_bound_s: FloatArray
    tpot_s: FloatArray
    gaps: FloatArray
    codes: CategoryCodes
    dropped: dict[str, int]

    def __len__(self) -> int:
        return len(self.decided_s)

    def take(self, rows: BoolArray | IntArray) -> Samples:
        """The chosen rows."""
        return Samples(
            features=self.features[rows],
            decided_s=self.decided_s[rows],
            run=self.run[rows],
            ttft_s=self.ttft_s[rows],
            ttft_bound_s=self.ttft_bound_s[rows],
            tpot_s=self.tpot_s[rows],
            gaps=self.gaps[rows],
            codes=self.codes,
            dropped=self.dropped,
        )

    def recoded(self, codes: CategoryCodes) -> Samples:
        """The same samples with other category codes; what these do not name becomes −1."""
        features = self.features.copy()
        for name, mine, code in (
            ("gpu_type", self.codes.gpu_types, codes.gpu_type),
            ("model", self.codes.models, codes.model),
        ):
            # The last entry translates −1, a category that was unknown before.
            translate = np.array([*(code(one) for one in mine), UNKNOWN_CODE])
            features[:, INDEX[name]] = translate[features[:, INDEX[name]].astype(np.int64)]
        return replace(self, features=features, codes=codes)


def join_samples(parts: Sequence[Samples], codes: CategoryCodes, dropped: dict[str, int]) -> Samples:
    """Several samples with common ``codes`` as one, in the order given."""
    return Samples(
        features=np.concatenate([part.features for part in parts]),
        decided_s=np.concatenate([part.decided_s for part in parts]),
        run=np.concatenate([part.run for part in parts]),
        ttft_s=np.concatenate([part.ttft_s for part in parts]),
        ttft_bound_s=np.concatenate([part.ttft_bound_s for part in parts]),
        tpot_s=np.concatenate([part.tpot_s for part in parts]),
        gaps=np.concatenate([part.gaps for part in parts]),
        codes=codes,
        dropped=dropped,
    )


def codes_of(kinds: Mapping[KindKey, EndpointKind]) -> CategoryCodes:
    """Category codes for all that the kinds name, sorted, so that equal fleets get equal codes."""
    return CategoryCodes(
        gpu_types=tuple(sorted({gpu_type for _, gpu_type, _ in kinds})),
        models=tuple(sorted({model for model, _, _ in kinds})),
    )


def samples_from_tables(tables: Sequence[pa.Table], kinds: Mapping[KindKey, EndpointKind]) -> Samples:
    """Samples of several runs; ``tables`` are decisions joined with outcomes, one table a run.

    Raises:
        LogError: A table lacks a column.
        ModelError: No usable row at all (reason ``data``).
    """
    codes = codes_of(kinds)
    parts = [table_samples(table, kinds, codes, run) for run, table in enumerate(tables)]
    dropped: dict[str, int] = {}
    for part in parts:
        for reason, count in part.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    if not any(len(part) for part in parts):
        raise ModelError(f"the log holds no usable latency sample; left out: {dropped}", reason="data")
    return join_samples(parts, codes, dropped)


def table_samples(
    table: pa.Table, kinds: Mapping[KindKey, EndpointKind], codes: CategoryCodes, run: int
) -> Samples:
    """Samples of one table, a whole run or a part of it; there may be none.

    Args:
        table: Decisions joined with outcomes.
        kinds: Hardware by the names of the log.
        codes: Category codes; see :func:`codes_of`.
        run: Number of the run.

    Raises:
        LogError: The table lacks a column.
    """
    for name in (*NEEDED, *SIGNALS):
        if name not in table.column_names:
            raise LogError("missing column", field=name, expected="decisions joined with outcomes")
    status = _numbers(table, "status")
    ttft, e2e = _numbers(table, "ttft_s"), _numbers(table, "e2e_s")
    gaps = _numbers(table, "output_tokens") - 1.0
    tpot = _numbers(table, "tpot_s")
    has_tpot = (status == Status.COMPLETED) & (tpot > 0) & (gaps >= 1)
    done, cancelled = status == Status.COMPLETED, status == Status.CANCELLED
    had_token = ttft > 0
    kind_rows, known_kind = _hardware(table, kinds, codes)
    inputs, hits = _numbers(table, "input_tokens"), _numbers(table, "hit_tokens")
    reasons = (
        ("no_outcome", np.isnan(status)),
        ("client_error", status == Status.CLIENT_ERROR),
        ("rejected", status == Status.REJECTED),
        ("failed", status == Status.FAILED),
        ("unknown_hardware", ~known_kind),
        ("missing_prompt_length", ~((inputs > 0) & (hits >= 0) & (hits <= inputs))),
        ("no_time", ~((done & had_token) | (cancelled & (had_token | (e2e > 0))))),
    )
    keep = np.ones(len(status), dtype=bool)
    dropped: dict[str, int] = {}
    for reason, bad in reasons:
        count = int((keep & bad).sum())
        if count:
            dropped[reason] = count
        keep &= ~bad
    rows = np.flatnonzero(keep)
    rows = rows[np.argsort(_numbers(table, "decided_s")[rows], kind="stable")]
    signals = Signals(**{name: _numbers(table, name)[rows] for name in SIGNALS})
    budget = _numbers(table, "output_budget")[rows]
    expected = _numbers(table, "expected_output_tokens")[rows]
    return Samples(
        features=feature_matrix(
            inputs[rows], hits[rows], budget, signals, kind_rows[rows], expected_output_tokens=expected
        ),
        decided_s=_numbers(table, "decided_s")[rows],
        run=np.full(len(rows), run, dtype=np.int64),
        ttft_s=np.where(had_token, ttft, np.nan)[rows],
        ttft_bound_s=np.where(had_token, np.nan, e2e)[rows],
        tpot_s=np.where(has_tpot, tpot, np.nan)[rows],
        gaps=np.where(has_tpot, gaps, 0.0)[rows],
        codes=codes,
        dropped=dropped,
    )


def _numbers(table: pa.Table, name: str) -> FloatArray:
    """A column as float64 with nulls as NaN."""
    column = pc.cast(table.column(name), pa.float64())
    numbers: FloatArray = pc.fill_null(column, np.nan).to_numpy()
    return numbers


def _hardware(
    table: pa.Table, kinds: Mapping[KindKey, EndpointKind], codes: CategoryCodes
) -> tuple[FloatArray, BoolArray]:
    """Fixed feature columns of each row, and whether the row's hardware is known.

    The token budget of a step is the logged one where there is one: a fleet's settings may change over time.
    """
    names = list(kinds)
    position: dict[tuple[str | None, str | None, int], int] = {key: index for index, key in enumerate(names)}
    model, gpu_type = _texts(table, "model"), _texts(table, "gpu_type")
    gpus = np.nan_to_num(_numbers(table, "gpus"), nan=-1.0).astype(np.int64).tolist()
    found = [position.get(key, -1) for key in zip(model, gpu_type, gpus, strict=True)]
    index = np.array(found, dtype=np.int64)
    known = index >= 0
    fixed = hardware_rows([kinds[name] for name in names], codes)
    # The last row stands for unknown hardware: position −1 finds it.
    rows = np.vstack([fixed, np.full((1, fixed.shape[1]), np.nan)])[index]
    budget = _numbers(table, "batch_token_budget")
    column = INDEX["batch_token_budget"] - INDEX["gpu_type"]
    rows[:, column] = np.where(budget > 0, budget, rows[:, column])
    return rows, known


def _texts(table: pa.Table, name: str) -> list[str | None]:
    column = table.column(name)
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    texts: list[str | None] = column.to_pylist()
    return texts
