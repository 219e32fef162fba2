"""Write a whole file at once: readers see the old content or the new one, never a part."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """An empty file beside ``path`` to write to; at the end it is synced and becomes ``path``.

    Nothing stays behind if anything fails, an interrupt included.

    Raises:
        OSError: The folder is missing, full or not writable, or ``path`` is a folder or a device, which a new file
            must not take the place of; ``path`` keeps what it held.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EEXIST, "a directory or device stands there", str(path))
    aside: Path | None = None
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        aside = Path(name)
        os.close(descriptor)
        yield aside
        with aside.open("rb") as file:
            os.fsync(file.fileno())
        aside.chmod(0o644)
        aside.replace(path)
    except OSError as error:
        # A full disk names no file, and the name of the one aside would say nothing to the reader of the message.
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        if aside is not None:
            aside.unlink(missing_ok=True)


def write_text_atomic(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 aside in the same folder, sync it and move it over ``path``; see :func:`replacing`.

    Raises:
        OSError: The file cannot be written; ``path`` keeps what it held.
    """
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="\n")
