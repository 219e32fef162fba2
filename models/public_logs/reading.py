"""Reads the text of public logs: plain or gzipped, any line end, with or without a byte-order mark."""

from __future__ import annotations

import csv
import gzip
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from data.errors import LogError


def read_text(path: Path) -> str:
    """The whole text of a file, gunzipped if its name ends in ``.gz``.

    Raises:
        LogError: The file is missing, cut short or not UTF-8.
    """
    try:
        raw = path.read_bytes()
        if path.suffix == ".gz":
            raw = gzip.decompress(raw)
        return raw.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise LogError(
            f"cannot be read: {error}", source=str(path), expected="UTF-8 text, plain or gzip"
        ) from error


def find(folder: Path, stem: str) -> Path:
    """The file ``stem`` or ``stem.gz`` of a folder; the plain one wins."""
    for name in (stem, f"{stem}.gz"):
        if (folder / name).is_file():
            return folder / name
    raise LogError("file not found", source=str(folder), value=stem, expected=f"{stem} or {stem}.gz")


def csv_rows(path: Path, needed: Sequence[str]) -> Iterator[dict[str, str]]:
    """Rows of a CSV file by column name; ``LogError`` if a needed column is missing."""
    reader = csv.DictReader(read_text(path).splitlines())
    for name in needed:
        if name not in (reader.fieldnames or ()):
            raise LogError("missing column", source=str(path), line=1, field=name)
    yield from reader


def json_value(path: Path) -> Any:
    """The value of a JSON file; ``LogError`` with the line if it is not JSON."""
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise LogError(f"not JSON: {error.msg}", source=str(path), line=error.lineno) from error


def json_lines(path: Path, dropped: Counter[str]) -> Iterator[dict[str, Any]]:
    """Objects of a JSON-lines file; lines that are none count as ``bad_line``."""
    for line in read_text(path).splitlines():
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError:
            value = None
        if isinstance(value, dict):
            yield value
        else:
            dropped["bad_line"] += 1


def numbers(row: Mapping[str, Any], names: Sequence[str]) -> list[float] | None:
    """The named fields as finite floats, or ``None`` if one of them is missing or none."""
    try:
        values = [float(row[name]) for name in names]
    except (KeyError, TypeError, ValueError):
        return None
    return values if all(map(math.isfinite, values)) else None
