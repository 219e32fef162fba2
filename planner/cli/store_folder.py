"""The folder of a model store that must be there already."""

from __future__ import annotations

from pathlib import Path

from data.errors import InputError


def store_folder(path: str) -> Path:
    """``path`` as a folder; a misspelt name must not look like an empty store.

    Raises:
        InputError: There is no such folder.
    """
    if not Path(path).is_dir():
        raise InputError("no such folder", source=path, expected="a model store")
    return Path(path)
