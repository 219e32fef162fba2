"""Feeds a drift monitor: joins decisions with outcomes as they come, or takes joined windows of a log.

The model is judged on its *own* answer to each logged row, computed again from the row's features, also while the
prior serves in its place; otherwise a drifted group could never show that it is back. What counts as an outcome is
what counts in training (``models.samples``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from data.errors import ModelError
from data.log.join import JOINED
from data.outcome_sink import RecordSink
from models.base import LatencyPredictor, Prediction
from models.calibration import load_band
from models.drift import DriftMonitor, ErrorBatch
from models.features import INDEX, EndpointKind
from models.samples import NEEDED, SIGNALS, KindKey, Samples, samples_from_tables

_COLUMNS = (*NEEDED, *SIGNALS)
_SCHEMA = pa.schema([JOINED.field(name) for name in _COLUMNS])


class DriftWatch:
    """A record sink that keeps a drift monitor up to date, in bounded memory and off the routing path.

    Outcomes are taken in ``batch_rows`` at a time, since one call of the model on many rows costs little more than
    on one.

    Args:
        predictor: The model without its guard, or the slot that it is swapped in.
        monitor: What is fed.
        kinds: Hardware by the names of the log, as for training.
        onward: Takes every row too, such as the log; ``None`` = nobody.
        batch_rows: Joined rows that are judged together (1 or more).
        batch_s: ... or when the first of them has waited this long, on the outcomes' clock.
        max_open: Decisions without an outcome that are remembered; beyond it the oldest are let go and counted.
    """

    def __init__(
        self,
        predictor: LatencyPredictor,
        monitor: DriftMonitor,
        kinds: Mapping[KindKey, EndpointKind],
        onward: RecordSink | None = None,
        *,
        batch_rows: int = 64,
        batch_s: float = 5.0,
        max_open: int = 50_000,
    ) -> None:
        self.monitor = monitor
        self.left_out: Counter[str] = Counter()
        """Rows that gave no error, by reason."""
        self._predictor = predictor
        self._kinds = kinds
        self._onward = onward
        self._batch_rows, self._batch_s, self._max_open = batch_rows, batch_s, max_open
        self._open: dict[tuple[int, int], dict[str, Any]] = {}
        self._joined: list[dict[str, Any]] = []
        self._first_s = 0.0

    def __len__(self) -> int:
        """Rows held: decisions without an outcome, and joined rows that wait for their batch."""
        return len(self._open) + len(self._joined)

    def decision(self, row: dict[str, Any]) -> None:
        """Remember a decision until its outcome comes."""
        if self._onward is not None:
            self._onward.decision(row)
        if row.get("endpoint") is None:
            return
        self._open[row["request_id"], row["attempt"]] = {name: row.get(name) for name in _COLUMNS}
        if len(self._open) > self._max_open:
            del self._open[next(iter(self._open))]
            self.left_out["forgotten"] += 1

    def outcome(self, row: dict[str, Any]) -> None:
        """Join an outcome with its decision, and judge when a batch is full."""
        if self._onward is not None:
            self._onward.outcome(row)
        decided = self._open.pop((row["request_id"], row["attempt"]), None)
        if decided is None:
            self.left_out["no_decision"] += 1
            return
        if not self._joined:
            self._first_s = row["finished_s"]
        decided.update((name, row[name]) for name in _COLUMNS if name in row)
        self._joined.append(decided)
        if len(self._joined) >= self._batch_rows or row["finished_s"] - self._first_s >= self._batch_s:
            self.flush()

    def flush(self) -> None:
        """Judge what has been joined so far."""
        if self._joined:
            rows, self._joined = self._joined, []
            self.take(pa.Table.from_pylist(rows, schema=_SCHEMA))

    def take(self, table: pa.Table) -> None:
        """Judge joined rows of a log.

        Raises:
            LogError: A column is missing.
        """
        predictor = self._predictor
        codes = predictor.codes
        self.monitor.follow(predictor.version, codes)
        try:
            samples = samples_from_tables([table], self._kinds).recoded(codes)
        except ModelError as error:
            if error.reason != "data":
                raise
            self.left_out["no_sample"] += len(table)
            return
        self.left_out.update(samples.dropped)
        for batch in error_batches(predictor.predict(samples.features), samples):
            self.monitor.add(batch)


def error_batches(prediction: Prediction, samples: Samples) -> tuple[ErrorBatch, ErrorBatch]:
    """Errors of TTFT and TPOT.

    A TTFT known only by a lower bound counts when the bound is beyond the predicted median already; whether the
    upper quantile covers it is known only when the bound is beyond that too. TPOT rows weigh as the tokens that
    they are the mean of. The upper quantile is 0.9, or the highest without it.
    """
    levels = prediction.quantiles
    middle, upper = prediction.median_column, levels.index(0.9) if 0.9 in levels else len(levels) - 1
    gpu = samples.features[:, INDEX["gpu_type"]].astype(np.int64)
    band = load_band(samples.features[:, INDEX["queue_depth"]])
    bounded = np.isnan(samples.ttft_s)
    batches = []
    for target, observed, weight in (
        (0, np.where(bounded, samples.ttft_bound_s, samples.ttft_s), np.ones(len(samples))),
        (1, samples.tpot_s, samples.gaps),
    ):
        predicted = prediction.ttft_s if target == 0 else prediction.tpot_s
        above = observed > predicted[:, upper]
        seen = ~bounded | (observed > predicted[:, middle]) if target == 0 else observed > 0
        rows = np.flatnonzero(seen)
        covered = np.where(above, 0.0, np.where(bounded & (target == 0), np.nan, 1.0))
        batches.append(
            ErrorBatch(
                target=target,
                gpu_code=gpu[rows],
                band=band[rows],
                decided_s=samples.decided_s[rows],
                log_ratio=np.log(observed[rows] / predicted[rows, middle]),
                covered=covered[rows],
                weight=weight[rows],
            )
        )
    return batches[0], batches[1]
