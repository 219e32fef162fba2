"""Output lengths of past requests in the order in which a router would have come to know them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data.errors import LogError
from data.types import FloatArray, Status
from models.output_length import LengthQuery

NUMBERS = ("decided_s", "finished_s", "status", "input_tokens", "output_budget", "output_tokens")
TEXTS = ("workload_class", "tenant", "model")


@dataclass(frozen=True, slots=True)
class LengthRow:
    """One completed request: what was known when it was decided, and what came out when it ended."""

    query: LengthQuery
    output_tokens: int
    finished_s: float


def replay(rows: Iterable[LengthRow], learn: Callable[[LengthQuery, int], None]) -> Iterator[LengthRow]:
    """Each row at the moment of its decision, after all that had finished by then was given to ``learn``.

    Args:
        rows: In order of ``query.now_s``.
        learn: Such as ``OutputLengthPredictor.observe``; after the last row it gets what was still under way.
    """
    under_way: list[tuple[float, int, LengthRow]] = []
    for number, row in enumerate(rows):
        while under_way and under_way[0][0] <= row.query.now_s:
            ended = heapq.heappop(under_way)[2]
            learn(ended.query, ended.output_tokens)
        yield row
        heapq.heappush(under_way, (row.finished_s, number, row))
    for _, _, ended in sorted(under_way):
        learn(ended.query, ended.output_tokens)


def rows_from_log(table: pa.Table) -> tuple[list[LengthRow], dict[str, int]]:
    """Completed requests of a log's joined rows in order of decision, and the rows left out by reason.

    The log holds neither sessions nor turns, so rows have none.

    Raises:
        LogError: A column is missing.
    """
    for name in (*NUMBERS, *TEXTS):
        if name not in table.column_names:
            raise LogError("missing column", field=name, expected="decisions joined with outcomes")
    number = {name: _numbers(table, name) for name in NUMBERS}
    text = {name: _texts(table, name) for name in TEXTS}
    not_completed = number["status"] != Status.COMPLETED
    no_length = ~not_completed & ~((number["output_tokens"] >= 1) & (number["input_tokens"] >= 1))
    dropped = {"not_completed": int(not_completed.sum()), "no_length": int(no_length.sum())}
    keep = np.flatnonzero(~not_completed & ~no_length)
    order = keep[np.argsort(number["decided_s"][keep], kind="stable")]
    rows = [
        LengthRow(
            query=LengthQuery(
                workload_class=text["workload_class"][i],
                tenant=text["tenant"][i],
                model=text["model"][i],
                input_tokens=int(number["input_tokens"][i]),
                output_budget=int(max(number["output_budget"][i], 1.0)),
                now_s=float(number["decided_s"][i]),
            ),
            output_tokens=int(number["output_tokens"][i]),
            finished_s=float(number["finished_s"][i]),
        )
        for i in order.tolist()
    ]
    return rows, {reason: count for reason, count in dropped.items() if count}


def _numbers(table: pa.Table, name: str) -> FloatArray:
    numbers: FloatArray = pc.fill_null(pc.cast(table.column(name), pa.float64()), np.nan).to_numpy()
    return numbers


def _texts(table: pa.Table, name: str) -> list[str]:
    column = table.column(name)
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    return [value or "" for value in column.to_pylist()]
