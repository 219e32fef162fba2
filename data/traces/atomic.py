"""Files that appear complete or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data.errors import TraceError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside ``path`` to write to; it becomes ``path`` at the end, and is removed if anything fails.

    Raises:
        TraceError: The folder does not exist or cannot be written to.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        aside.touch()
    except OSError as error:
        raise TraceError(f"cannot be written: {error.strerror or error}", source=str(path)) from error
    try:
        yield aside
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
