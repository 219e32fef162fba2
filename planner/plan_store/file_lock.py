"""Advisory locks on files, which the system frees by itself when their process dies, however it dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PAUSE_S = 0.01


class FileLock:
    """A lock held by this object; not shared with children that are spawned.

    Args:
        path: The lock's file, made when missing. It holds nothing and is never removed while somebody may want it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def try_take(self) -> bool:
        """Take it if nobody else has it; whether it is held now.

        Raises:
            OSError: The file cannot be made.
        """
        if self._descriptor is not None:
            return True
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def free(self) -> None:
        """Give it back; nothing happens if it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextmanager
def locked(path: Path, wait_s: float, sleep: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Hold the lock at ``path`` inside the block.

    Raises:
        TimeoutError: Somebody else kept it for ``wait_s`` seconds.
        OSError: The file cannot be made.
    """
    lock = FileLock(path)
    for _ in range(max(1, round(wait_s / PAUSE_S))):
        if lock.try_take():
            break
        sleep(PAUSE_S)
    else:
        raise TimeoutError(f"{path}: held by another process for {wait_s:g} s")
    try:
        yield
    finally:
        lock.free()
