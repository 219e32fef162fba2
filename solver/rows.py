"""Collects the rows of a linear model block by block and hands them over as one sparse matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from data.types import FloatArray

Numbers = Sequence[float] | npt.NDArray[Any] | float
Term = tuple[npt.NDArray[Any], npt.NDArray[Any], Numbers]
"""Row numbers within the block, column numbers of the model, coefficients (or one for all)."""


class RowBlocks:
    """Named blocks of rows. ``spans[name]`` says which rows of the matrix a block became."""

    def __init__(self) -> None:
        self._rows: list[npt.NDArray[Any]] = []
        self._columns: list[npt.NDArray[Any]] = []
        self._values: list[FloatArray] = []
        self._lower: list[FloatArray] = []
        self._upper: list[FloatArray] = []
        self._count = 0
        self.spans: dict[str, slice] = {}

    def add(self, name: str, count: int, terms: Sequence[Term], lower: Numbers, upper: Numbers) -> None:
        """Append ``count`` rows ``lower <= Σ terms <= upper``; entries at the same place add up."""
        for rows, columns, values in terms:
            self._rows.append(np.asarray(rows, dtype=np.int64) + self._count)
            self._columns.append(np.asarray(columns, dtype=np.int64))
            self._values.append(np.broadcast_to(np.asarray(values, dtype=np.float64), np.shape(rows)))
        self._lower.append(np.broadcast_to(np.asarray(lower, dtype=np.float64), (count,)))
        self._upper.append(np.broadcast_to(np.asarray(upper, dtype=np.float64), (count,)))
        self.spans[name] = slice(self._count, self._count + count)
        self._count += count

    def finish(self, columns: int) -> tuple[Any, FloatArray, FloatArray]:
        """The CSR matrix with its row limits."""
        if not self._lower:
            return scipy.sparse.csr_matrix((0, columns)), np.empty(0), np.empty(0)
        place = (np.concatenate(self._rows), np.concatenate(self._columns))
        matrix = scipy.sparse.csr_matrix((np.concatenate(self._values), place), shape=(self._count, columns))
        matrix.sum_duplicates()
        matrix.sort_indices()
        return matrix, np.concatenate(self._lower), np.concatenate(self._upper)
