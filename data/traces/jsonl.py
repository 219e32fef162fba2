"""Typed decoding of JSON lines: whole blocks at once, line by line where a block has a bad line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec
import numpy as np

from data.traces.report import ReadReport, Reject
from data.traces.source import LineBlock, TextSource
from data.types import IntArray

RowT = TypeVar("RowT")


def row_blocks(source: TextSource, report: ReadReport, rows: int, max_rows: int | None) -> Iterator[LineBlock]:
    """Blocks of lines that are rows, counted as read; no more than ``max_rows`` in all."""
    for block in source.blocks(report, rows):
        left = len(block.lines) if max_rows is None else max_rows - report.rows
        if left < len(block.lines):
            block = LineBlock(block.lines[: max(left, 0)], block.numbers[: max(left, 0)])
        report.rows += len(block.lines)
        if block.lines:
            yield block
        if max_rows is not None and report.rows >= max_rows:
            return


def decode_block(
    block: LineBlock, decode: Callable[[bytes], RowT], report: ReadReport
) -> tuple[list[RowT], IntArray]:
    """The rows that decode and their line numbers; the others are counted by reason."""
    try:
        return [decode(line) for line in block.lines], block.numbers
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    rows, numbers = [], []
    for line, number in zip(block.lines, block.numbers.tolist(), strict=True):
        row = decode_line(line, number, decode, report)
        if row is not None:
            rows.append(row)
            numbers.append(number)
    return rows, np.array(numbers, dtype=np.int64)


def decode_line(line: bytes, number: int, decode: Callable[[bytes], RowT], report: ReadReport) -> RowT | None:
    """The row, or ``None`` and one count more under the reason."""
    try:
        return decode(line)
    except msgspec.ValidationError as error:
        report.reject(Reject.BAD_FIELD, number, str(error))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        report.reject(Reject.BAD_JSON, number, str(error))
    return None
