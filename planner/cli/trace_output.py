"""Where a trace command writes to, and in which format."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from data.errors import SettingError
from data.types import TraceBatch

SUFFIXES = {".parquet": "native", ".jsonl": "mooncake"}
"""Format by the suffix of the file."""


def output_format(asked: str | None, path: Path) -> str:
    """``native`` or ``mooncake``, as asked for or by the suffix.

    Raises:
        SettingError: Nothing was asked for and the suffix says nothing.
    """
    target = asked or SUFFIXES.get(path.suffix)
    if target is None:
        raise SettingError("no format for this suffix", field="OUTPUT", value=str(path), expected="--to FORMAT")
    return target


def write_trace(rows: Iterable[TraceBatch], target: str, path: Path) -> int:
    """Write the rows, whole or not at all; returns how many.

    Raises:
        TraceError: The file cannot be written, or the rows cannot be read.
    """
    from data.traces.mooncake import write_mooncake
    from data.traces.native import write_native

    write = write_native if target == "native" else write_mooncake
    return write(rows, path)
