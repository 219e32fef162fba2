"""A file that a command will write: tried before any long work."""

from __future__ import annotations

import tempfile
from pathlib import Path

from data.errors import InputError


def output_file(path: str | Path | None) -> Path | None:
    """A file to write later; whether it can be is tried now, before any long work.

    Raises:
        InputError: The folder does not exist or cannot be written to, or a directory or device has that name.
    """
    if path is None:
        return None
    file = Path(path)
    folder = file.absolute().parent
    if not folder.is_dir():
        raise InputError("no such folder", source=str(path), value=str(folder), expected="a folder that exists")
    if file.exists() and not file.is_file():
        raise InputError("a directory or device stands there", source=str(path), expected="a plain file")
    try:
        with tempfile.TemporaryFile(dir=folder):
            return file
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from error
