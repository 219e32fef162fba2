"""Progress of long work on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

LINE_EVERY_S = 5.0
"""Elsewhere than on a terminal, at most one line in this time."""


class RunProgress:
    """Counts finished steps of ``total``. Use it as a context manager.

    Args:
        title: What is being done.
        total: Steps to do.
        quiet: Show nothing at all.
    """

    def __init__(self, title: str, total: int, quiet: bool = False) -> None:
        self._title, self._total, self._done = title, total, 0
        self._quiet = quiet
        self._bar = _bar() if sys.stderr.isatty() and not quiet else None
        self._task = self._bar.add_task(title, total=total, note="") if self._bar is not None else None
        self._last_line_s = time.monotonic()

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        elif not self._quiet:
            click.echo(f"{self._title}: 0 of {self._total}", err=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, note: str) -> None:
        """One more step is done; ``note`` says which and what came of it."""
        self.at(self._done + 1, note)

    def at(self, done: int, note: str) -> None:
        """``done`` steps are done in all."""
        self._done = done
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, note=note[:60])
        elif not self._quiet:
            self._line(note)

    def _line(self, note: str) -> None:
        now_s = time.monotonic()
        if now_s - self._last_line_s < LINE_EVERY_S:
            return
        self._last_line_s = now_s
        click.echo(f"{self._title}: {self._done} of {self._total}" + (f": {note}" if note else ""), err=True)


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        console=Console(stderr=True),
    )
