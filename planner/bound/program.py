"""The linear program of the bound, solved with rows as they are broken.

    maximise Σ n_i·x_ik   subject to   Σ_k x_ik <= 1,   rows (6),   x >= 0

Leaving rows out only raises the optimum, so the search may stop at any time. What is reported is not the solver's
objective but the value of its prices: for any λ >= 0 on the rows

(7)  ``Σ_r λ_r·room_r + Σ_i max(0, max_k (n_i - Σ_r λ_r·work_rik))``

is at least the optimum, whatever the accuracy of the solver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse

from data.types import FloatArray
from planner.bound.interval_rows import KindRows, Row

ROUNDS = 40
MOST_ROWS = 400
"""No rounds are begun with more rows: they cost more time than they lower the bound."""
ROWS_AT_ONCE = 6
"""Rows added in a round for each length, kind and reading, at most."""
LEAST_FALL = 2e-4
PATIENCE = 3
"""The search ends when so many rounds lower the bound by less than ``LEAST_FALL`` of it: at first work only moves
from kind to kind."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A row and its share of the bound."""

    name: str
    row: Row
    share: float


@dataclass(frozen=True, slots=True)
class Solved:
    """Value (7), the shares of each request on each kind at the last optimum, and the rows that have a price."""

    value: float
    shares: FloatArray
    priced: tuple[Priced, ...]
    rows: int
    rounds: int


def solve(values: FloatArray, kinds: Sequence[KindRows]) -> Solved:
    """The least bound found.

    Args:
        values: Worth of each request; shape (requests,).
        kinds: Where each may be served.
    """
    columns = _Columns(values, kinds)
    rows: list[Row] = []
    # Rows are looked for at a point inside rather than at a corner, of which an optimum may have very many.
    middle = columns.balanced()
    best = Solved(columns.ceiling(), middle, (), 0, 0)
    waited, mark = 0, best.value
    for round_number in range(1, ROUNDS + 1):
        new = columns.broken(middle, rows)
        if not new or waited >= PATIENCE or len(rows) >= MOST_ROWS:
            break
        rows += new
        primal, prices = columns.optimum(rows)
        value = columns.worth_of(prices, rows)
        corner = columns.by_request(primal)
        middle = (middle + corner) / 2
        if value < best.value:
            best = Solved(value, corner, columns.priced(prices, rows), len(rows), round_number)
        waited, mark = (waited + 1, mark) if mark - value < LEAST_FALL * mark else (0, value)
    return best


class _Columns:
    """One column for each request and kind that may serve it."""

    def __init__(self, values: FloatArray, kinds: Sequence[KindRows]) -> None:
        self._values, self._kinds = values, kinds
        self._request = np.concatenate([kind.requests for kind in kinds])
        self._first = np.cumsum([0, *(len(kind.requests) for kind in kinds)])
        self._work = scipy.sparse.csr_matrix((0, len(self._request)))
        self._built = 0
        columns = np.arange(len(self._request))
        ones = np.ones(len(columns))
        self._once = scipy.sparse.csr_matrix((ones, (self._request, columns)), shape=(len(values), len(columns)))

    def ceiling(self) -> float:
        """Worth of all requests that some kind may serve."""
        return float(self._values[np.unique(self._request)].sum())

    def balanced(self) -> FloatArray:
        """Every request shared out among the kinds that may serve it, by their number and speed."""
        shares = np.zeros((len(self._values), len(self._kinds)))
        for at, kind in enumerate(self._kinds):
            shares[kind.requests, at] = kind.speed
        whole = shares.sum(axis=1, keepdims=True)
        found: FloatArray = np.divide(shares, whole, out=np.zeros_like(shares), where=whole > 0)
        return found

    def broken(self, shares: FloatArray, rows: Sequence[Row]) -> list[Row]:
        """Rows that shares break, without those that are there."""
        known = set(rows)
        found = [
            row
            for at, kind in enumerate(self._kinds)
            for row in kind.broken(shares[kind.requests, at], ROWS_AT_ONCE)
        ]
        return [row for row in found if row not in known]

    def optimum(self, rows: Sequence[Row]) -> tuple[FloatArray, FloatArray]:
        """Optimum and prices of the rows; ``RuntimeError`` if the solver fails."""
        from scipy.optimize import linprog  # slow to import

        self._extend(rows)
        room = np.array([row.room_s for row in rows])
        # Rows are scaled to 1, so that the solver's tolerance means the same in a second and in an hour.
        scale = scipy.sparse.diags(1.0 / room)
        answer = linprog(
            -self._values[self._request],
            A_ub=scipy.sparse.vstack([self._once, scale @ self._work], format="csr"),
            b_ub=np.ones(len(self._values) + len(rows)),
            bounds=(0.0, None),
            method="highs",
        )
        if answer.x is None:
            raise RuntimeError(f"the program of the bound was not solved: {answer.message}")
        prices = np.maximum(-answer.ineqlin.marginals[len(self._values) :], 0.0)
        return np.asarray(answer.x), prices / room

    def worth_of(self, prices: FloatArray, rows: Sequence[Row]) -> float:
        """(7)."""
        gain = self._values[self._request] - self._work.T @ prices
        best = np.zeros(len(self._values))
        np.maximum.at(best, self._request, gain)
        return float(best.sum() + prices @ np.array([row.room_s for row in rows]))

    def by_request(self, primal: FloatArray) -> FloatArray:
        """Shape (requests, kinds)."""
        shares = np.zeros((len(self._values), len(self._kinds)))
        for at, kind in enumerate(self._kinds):
            shares[kind.requests, at] = primal[self._first[at] : self._first[at + 1]]
        return shares

    def priced(self, prices: FloatArray, rows: Sequence[Row]) -> tuple[Priced, ...]:
        """Rows with a price, dearest first."""
        paid = prices * np.array([row.room_s for row in rows])
        order = [at for at in np.argsort(-paid, kind="stable").tolist() if paid[at] > 0]
        whole = max(self.worth_of(prices, rows), 1e-9)
        return tuple(
            Priced(self._kinds[rows[at].kind].name(rows[at]), rows[at], float(paid[at] / whole)) for at in order
        )

    def _extend(self, rows: Sequence[Row]) -> None:
        blocks = [self._work]
        for row in rows[self._built :]:
            kind = self._kinds[row.kind]
            work_s = kind.coefficients(row)
            some = np.flatnonzero(work_s)
            column = self._first[row.kind] + some
            blocks.append(
                scipy.sparse.csr_matrix(
                    (work_s[some], (np.zeros(len(some), dtype=np.int64), column)), shape=(1, len(self._request))
                )
            )
        self._work = scipy.sparse.vstack(blocks, format="csr")
        self._built = len(rows)
