"""Rows of a CSV file by column name, one line a row, whatever the order and spelling of its header."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass

from data.errors import TraceError
from data.traces.assemble import READ_ROWS
from data.traces.chunk import LIMIT
from data.traces.formats import csv_columns
from data.traces.report import ReadReport, Reject
from data.traces.source import LineBlock, TextSource


@dataclass(frozen=True, slots=True)
class CsvBlock:
    """Rows of one block: line number and one cell for each wanted column (``b""`` where the file lacks it)."""

    rows: list[tuple[int, list[bytes]]]


def csv_blocks(
    source: TextSource,
    report: ReadReport,
    needed: tuple[str, ...],
    optional: tuple[str, ...],
    max_rows: int | None,
) -> Iterator[CsvBlock]:
    """Blocks of rows with the ``needed`` and then the ``optional`` columns, by their plain names.

    A row with another number of cells than the header is counted and left out.

    Raises:
        TraceError: A needed column is missing.
    """
    header: tuple[str, ...] | None = None
    places: list[int] = []
    for block in source.blocks(report, READ_ROWS):
        if header is None:
            header = csv_columns(block.lines[0]) if block.lines else None
            if header is None:
                continue
            places = _places(header, needed, optional, source)
            block = LineBlock(block.lines[1:], block.numbers[1:])
        left = len(block.lines) if max_rows is None else max(0, max_rows - report.rows)
        lines = block.lines[:left]
        report.rows += len(lines)
        yield CsvBlock(list(_rows(lines, block.numbers.tolist(), len(header), places, report)))
        if max_rows is not None and report.rows >= max_rows:
            return
    if header is None:
        raise TraceError("is empty", source=str(source.path), expected="a CSV header with " + ", ".join(needed))


def _places(
    header: tuple[str, ...], needed: tuple[str, ...], optional: tuple[str, ...], source: TextSource
) -> list[int]:
    missing = [name for name in needed if name not in header]
    if missing:
        raise TraceError(
            "the CSV header lacks " + ", ".join(missing),
            source=str(source.path),
            line=1,
            value=",".join(header),
            expected="columns " + ", ".join(needed),
        )
    return [header.index(name) if name in header else -1 for name in (*needed, *optional)]


def _rows(
    lines: list[bytes], numbers: list[int], width: int, places: list[int], report: ReadReport
) -> Iterator[tuple[int, list[bytes]]]:
    for line, number in zip(lines, numbers, strict=False):
        cells = line.split(b",") if b'"' not in line else _quoted(line)
        if len(cells) != width:
            report.reject(Reject.BAD_COLUMNS, number, f"{len(cells)} cells, {width} in the header")
            continue
        yield number, [cells[place] if place >= 0 else b"" for place in places]


def _quoted(line: bytes) -> list[bytes]:
    try:
        cells = next(csv.reader([line.decode("utf-8", "surrogateescape")]), [])
    except csv.Error:
        return []
    return [cell.encode("utf-8", "surrogateescape") for cell in cells]


def count_of(cell: bytes) -> int:
    """A whole number, also when written as ``21073.0``; ``ValueError`` for anything else."""
    try:
        if cell.strip().lstrip(b"+-").isdigit():
            value = int(cell)
        else:
            number = float(cell.replace(b"_", b"?"))
            if number != int(number):
                raise ValueError("no whole number")
            value = int(number)
    except OverflowError as error:
        raise ValueError("no finite number") from error
    if not -LIMIT < value < LIMIT:
        raise ValueError("number beyond 62 bits")
    return value


def text_of(cell: bytes) -> str:
    """The cell as text; bytes that are not UTF-8 become U+FFFD."""
    return cell.decode("utf-8", "replace").strip()
