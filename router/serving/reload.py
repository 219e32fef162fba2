"""Files that a running router follows: fleet file, plan, latency model, clients file.

A changed file is read and checked beside what serves; only a good one is swapped in, as a whole. A bad or missing
one leaves what serves as it is, and says so in the status. Reading happens on a worker thread, swapping on the
event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from data.errors import DocumentError, TokenFleetError

T = TypeVar("T")
Signature = tuple[int, int, int]
"""Inode, size and change time: any way of replacing or rewriting a file changes one of them."""
MOST_ERRORS = 20
"""Faults of one document that the status keeps; the rest is counted."""


@dataclass(frozen=True, slots=True)
class ReloadStatus:
    """What became of the last change of one file.

    Attributes:
        what: Which of the router's inputs.
        active: Version that serves.
        attempted: Version tried last; the same as ``active`` after a good reload, empty if it could not be read.
        errors: Why the last one was refused; empty after a good reload.
    """

    what: str
    active: str
    attempted: str
    errors: tuple[str, ...]


class WatchedFile(Generic[T]):
    """One file and the value that it last gave.

    Args:
        what: Name for status and metrics, such as ``fleet``.
        path: The file.
        load: Reads and checks it; raises a ``TokenFleetError`` or ``OSError`` if it is no good.
        apply: Swaps the value in, all or nothing; may raise ``TokenFleetError``.
        version: Names a value.
        active: Version that serves at first.
    """

    def __init__(
        self,
        what: str,
        path: Path,
        load: Callable[[Path], T],
        apply: Callable[[T], None],
        version: Callable[[T], str],
        active: str,
    ) -> None:
        self.what = what
        self._path = path
        self._load = load
        self._apply = apply
        self._version = version
        self._seen = self._signature()
        self._status = ReloadStatus(what, active, active, ())

    @property
    def status(self) -> ReloadStatus:
        """What became of the last change."""
        return self._status

    def changed(self) -> bool:
        """Whether the file is another one than when it was last looked at; looks at it now."""
        now = self._signature()
        changed = now != self._seen
        self._seen = now
        return changed

    def read(self) -> T | TokenFleetError | OSError:
        """Read the file; what is wrong with it is the answer, not an exception. Safe on another thread."""
        try:
            return self._load(self._path)
        except (TokenFleetError, OSError) as error:
            return error

    def take(self, found: T | TokenFleetError | OSError) -> bool:
        """Swap in what was read, or keep what serves; gives whether it was swapped in."""
        attempted = ""
        try:
            if isinstance(found, TokenFleetError | OSError):
                raise found
            attempted = self._version(found)
            self._apply(found)
        except (TokenFleetError, OSError) as error:
            self._status = ReloadStatus(self.what, self._status.active, attempted, _faults(error))
            return False
        self._status = ReloadStatus(self.what, attempted, attempted, ())
        return True

    def _signature(self) -> Signature | None:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_size, stat.st_mtime_ns


async def follow(
    watched: Sequence[WatchedFile[object]],
    period_s: float,
    told: Callable[[WatchedFile[object], bool], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Look at all files each ``period_s`` until cancelled.

    Args:
        watched: The files.
        period_s: Pause between two looks.
        told: Called after each attempt with whether the new version serves.
        sleep: Waits.
    """
    while True:
        await sleep(period_s)
        for file in watched:
            if file.changed():
                await reload_now(file, told)


async def reload_now(file: WatchedFile[object], told: Callable[[WatchedFile[object], bool], None]) -> bool:
    """Read one file now, changed or not, and swap it in if it is good."""
    found = await asyncio.to_thread(file.read)
    swapped = file.take(found)
    told(file, swapped)
    return swapped


def _faults(error: TokenFleetError | OSError) -> tuple[str, ...]:
    problems = error.problems if isinstance(error, DocumentError) else (error,)
    shown = tuple(str(problem) for problem in problems[:MOST_ERRORS])
    more = len(problems) - len(shown)
    return (*shown, f"and {more} more") if more else shown
