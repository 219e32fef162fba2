"""Rows of one table between their arrival and their file: cheap to append to, columns when sealed."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data.errors import LogError
from data.log.partitions import HOUR_S, hour_in_range

SLICE_ROWS = 1024
MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""What a value that does not fit its column raises on its way to Arrow."""


class RowBuffer:
    """Takes rows as dictionaries and gives them back as Arrow tables.

    Appending costs one tuple a row: types are converted by the column when the buffer is sealed, which is ten
    times cheaper than row by row. A row is copied, so the caller may reuse its dictionary.

    Args:
        schema: Columns of the table.
        clock_column: Column of the row's own time in seconds; it decides the partition.
    """

    def __init__(self, schema: pa.Schema, clock_column: str) -> None:
        self.schema = schema
        self.clock_column = clock_column
        self.rows: list[tuple[Any, ...]] = []
        self._names = tuple(schema.names)
        self._known = frozenset(self._names)
        self._take = operator.itemgetter(*self._names)

    def append(self, row: dict[str, Any]) -> None:
        """Add one row; an absent key means null.

        Raises:
            LogError: A key that the schema does not have.
        """
        if len(row) == len(self._names):
            try:
                self.rows.append(self._take(row))
                return
            except KeyError:
                pass  # an unknown key stands in for a missing one: told below
        unknown = row.keys() - self._known
        if unknown:
            raise LogError("unknown column", field=min(unknown), expected="a column of data.log.schema")
        self.rows.append(tuple(map(row.get, self._names)))

    def take(self) -> list[tuple[Any, ...]]:
        """Hand over the rows and start empty."""
        rows, self.rows = self.rows, []
        return rows

    def tables(self, rows: list[tuple[Any, ...]]) -> tuple[dict[int, pa.Table], Counter[str]]:
        """Rows as one table for each hour since the epoch, and rejected rows counted by reason.

        NaN becomes null. A row is rejected when a value does not fit its column, when a column that must not be
        null is, or when its time cannot be filed; every other row is kept.
        """
        rejected: Counter[str] = Counter()
        try:
            table = self._convert(rows)
        except MISFITS:
            rows, rejected = self._keep_fitting(rows)
            table = self._convert(rows)
        return _split_by_hour(table, self.clock_column), rejected

    def _convert(self, rows: list[tuple[Any, ...]]) -> pa.Table:
        """All rows as one table; one of ``MISFITS`` if any value does not fit."""
        if not rows:
            return self.schema.empty_table()
        columns = [_Column(field) for field in self.schema]
        # In slices that stay in the processor's cache: half the time of turning all rows at once.
        for start in range(0, len(rows), SLICE_ROWS):
            for column, values in zip(columns, zip(*rows[start : start + SLICE_ROWS], strict=True), strict=True):
                column.extend(values)
        table = pa.Table.from_arrays([column.array() for column in columns], schema=self.schema)
        _check_filed(table.column(self.clock_column))
        return table

    def _keep_fitting(self, rows: list[tuple[Any, ...]]) -> tuple[list[tuple[Any, ...]], Counter[str]]:
        """Slow path, taken only after a column failed: convert value by value to find the misfits."""
        kept = []
        rejected: Counter[str] = Counter()
        for row in rows:
            misfit = next((f.name for f, value in zip(self.schema, row, strict=True) if not _fits(value, f)), None)
            if misfit is not None:
                rejected[f"{misfit}: value does not fit"] += 1
                continue
            try:
                self._convert([row])
            except MISFITS:
                rejected[f"{self.clock_column}: not a time from 1970 to 9999"] += 1
            else:
                kept.append(row)
        return kept, rejected


class _Codes(dict[str | None, int | None]):
    """Code of each text in order of first appearance; null has none."""

    def __init__(self) -> None:
        super().__init__({None: None})

    def __missing__(self, text: str | None) -> int:
        if not isinstance(text, str):
            raise TypeError(f"not a text: {text!r}")
        code = len(self) - 1
        self[text] = code
        return code


class _Column:
    """One column under construction. Texts become codes here, which is twice as fast as Arrow's own encoding."""

    def __init__(self, field: pa.Field) -> None:
        self._field = field
        self._codes = _Codes() if pa.types.is_dictionary(field.type) else None
        self._type = field.type if self._codes is None else field.type.index_type
        self._pieces: list[pa.Array] = []

    def extend(self, values: tuple[Any, ...]) -> None:
        """Add values; one of ``MISFITS`` if one does not fit."""
        known = list(values if self._codes is None else map(self._codes.__getitem__, values))
        # ``from_pandas`` is Arrow's name for "NaN means null"; pandas is not needed for it.
        piece = pa.array(known, type=self._type, from_pandas=True)
        if not self._field.nullable and piece.null_count:
            raise ValueError(f"{self._field.name} must not be null")
        self._pieces.append(piece)

    def array(self) -> pa.Array:
        """The whole column."""
        whole = pa.concat_arrays(self._pieces)
        if self._codes is None:
            return whole
        texts = pa.array([text for text in self._codes if text is not None], type=self._field.type.value_type)
        return pa.DictionaryArray.from_arrays(whole, texts)


def _fits(value: Any, field: pa.Field) -> bool:
    try:
        _Column(field).extend((value,))
    except MISFITS:
        return False
    return True


def _check_filed(times: pa.ChunkedArray) -> None:
    """``ValueError`` unless every time lies in an hour that has a partition."""
    bounds = pc.min_max(times).as_py()
    if not (hour_in_range(bounds["min"] // HOUR_S) and hour_in_range(bounds["max"] // HOUR_S)):
        raise ValueError("a time before 1970 or after 9999")


def _split_by_hour(table: pa.Table, clock_column: str) -> dict[int, pa.Table]:
    hours = np.floor_divide(table.column(clock_column).to_numpy(), HOUR_S).astype(np.int64)
    distinct = np.unique(hours).tolist()
    if len(distinct) <= 1:
        return dict.fromkeys(distinct, table)
    return {hour: table.filter(pa.array(hours == hour)) for hour in distinct}
