"""What a trace format is: a name, a way to recognise it and a way to read it."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import msgspec
import orjson

from data.traces.options import TraceOptions
from data.traces.report import ReadReport
from data.traces.source import TextSource
from data.types import TraceBatch


class Head:
    """The beginning of a file as text, for recognising its format."""

    def __init__(self, text: bytes) -> None:
        self.text = text

    @cached_property
    def first_line(self) -> bytes:
        """The first line that is not blank, cut if it is longer than the head."""
        return next((line.strip() for line in self.text.splitlines() if line.strip()), b"")

    def first_object(self) -> dict[str, Any]:
        """The first line as a JSON object; ``{}`` if it is none."""
        try:
            found = orjson.loads(self.first_line)
        except ValueError:
            try:
                found = msgspec.json.decode(self.first_line)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                return {}
        return found if isinstance(found, dict) else {}

    @cached_property
    def csv_names(self) -> tuple[str, ...]:
        """Names of the columns if the first line were a CSV header, by ``column_name``."""
        return csv_columns(self.first_line)


class ReadRows(Protocol):
    """Reads the rows of an opened file."""

    def __call__(self, source: TextSource, options: TraceOptions, report: ReadReport) -> Iterator[TraceBatch]:
        """Batches in order; the report is complete when they are exhausted."""
        ...


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """One format. ``sniff`` tells why a file looks like it, or ``None``."""

    name: str
    description: str
    sniff: Callable[[Head], str | None]
    read: ReadRows


def column_name(name: str) -> str:
    """A column's name without case, blanks, hyphens and underscores."""
    return name.strip().strip("\ufeff").lower().replace(" ", "").replace("_", "").replace("-", "")


def csv_columns(line: bytes) -> tuple[str, ...]:
    """Plain names of the columns of a header line."""
    try:
        cells = next(csv.reader([line.decode("utf-8", "replace")]), [])
    except csv.Error:
        return ()
    return tuple(column_name(cell) for cell in cells)
