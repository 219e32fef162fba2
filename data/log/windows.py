"""Cuts a log into windows of about equal size, from what its files say of themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data.errors import LogError
from data.log.partitions import Partition, list_partitions

WINDOW_ROWS = 100_000
"""Decisions that a window holds at most, if they are spread evenly over their hour."""
LEAST_WINDOW_S = 600.0
"""Shortest window: every window also reads the outcomes of the look-ahead behind it."""

Window = tuple[float, float]
"""``since_s <= decided_s < until_s``."""


def log_windows(
    root: Path,
    since_s: float = 0.0,
    until_s: float = math.inf,
    *,
    most_rows: int = WINDOW_ROWS,
    least_s: float = LEAST_WINDOW_S,
) -> list[Window]:
    """Windows that together hold every decision of ``[since_s, until_s)`` once, oldest first.

    Each lies within one hour; an hour with more than ``most_rows`` decisions is cut into equal spans, but none
    shorter than ``least_s``. Only the files' own headers are read. A file that has none stands in a window all the
    same: the reader will name it.

    Raises:
        LogError: ``most_rows`` or ``least_s`` is not above 0.
    """
    for name, value in (("most_rows", most_rows), ("least_s", least_s)):
        if not value > 0:
            raise LogError("limit out of range", field=name, value=value, expected="a number above 0")
    windows: list[Window] = []
    for partition in list_partitions(root, "decisions"):
        first, last = max(partition.since_s, since_s), min(partition.until_s, until_s)
        if first < last:
            windows += _cut(partition, first, last, most_rows, least_s)
    return windows


def _cut(partition: Partition, first: float, last: float, most_rows: int, least_s: float) -> Iterator[Window]:
    rows, oldest, newest = _extent(partition)
    low, high = max(first, oldest), min(last, newest)
    share = (high - low) / (newest - oldest) if newest > oldest else 1.0
    pieces = math.ceil(rows * share / most_rows) if high > low else 1
    pieces = max(1, min(pieces, int((high - low) / least_s))) if high > low else 1
    borders = [first, *np.linspace(low, high, pieces + 1)[1:-1].tolist(), last]
    yield from pairwise(borders)


def _extent(partition: Partition) -> tuple[int, float, float]:
    """Decisions of an hour, and the times of the first and the last one as far as the files say."""
    rows, oldest, newest = 0, math.inf, -math.inf
    for file in partition.files():
        try:
            header = pq.read_metadata(file)
        except (pa.ArrowException, OSError):
            continue
        rows += header.num_rows
        for group in range(header.num_row_groups):
            for low, high in _bounds(header.row_group(group)):
                oldest, newest = min(oldest, low), max(newest, high)
    if oldest > newest:
        return rows, partition.since_s, partition.until_s
    return rows, oldest, newest


def _bounds(group: pq.RowGroupMetaData) -> Iterator[Window]:
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == "decided_s" and column.statistics is not None:
            if column.statistics.has_min_max:
                yield column.statistics.min, column.statistics.max
            return
