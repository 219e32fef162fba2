"""Trace files that appear complete or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data.atomic_file import replacing
from data.errors import TraceError


@contextmanager
def replacing_trace(path: Path) -> Iterator[Path]:
    """:func:`data.atomic_file.replacing` for a trace: the same, with an error that names the trace.

    Raises:
        TraceError: The folder is missing, full or not writable, or no plain file can stand there.
    """
    try:
        with replacing(path) as aside:
            yield aside
    except OSError as error:
        raise TraceError(f"cannot be written: {error.strerror or error}", source=str(path)) from error
