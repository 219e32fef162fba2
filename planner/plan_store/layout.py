"""Where a plan store's files lie, and how they are read.

::

    DIR/CURRENT          the pointer: the newest entry (JSON), replaced whole
    DIR/entries/N.json   every entry, N = version in nine digits
    DIR/plans/N-ID.json  the plan of each entry
    DIR/plan.json        link to the current plan, for programs that follow a plan file
    DIR/LEADER           who may publish (JSON), replaced whole
    DIR/locks/           lock files

A version is written in this order: plan, entry, pointer, link. A crash before the pointer leaves files that no
reader looks at and the next version replaces; a crash after it leaves an old link, which the next start mends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from data.errors import PlanFileError
from data.plan import PlanDocument
from data.plan_io import plan_from_json
from planner.plan_store.entry import StoreEntry, entry_from_json

POINTER, LINK = "CURRENT", "plan.json"


@dataclass(frozen=True, slots=True)
class Published:
    """A version and its plan."""

    entry: StoreEntry
    plan: PlanDocument


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """Reads a plan store; any number of processes may, while one writes.

    Attributes:
        root: Folder of the store.
    """

    root: Path

    def exists(self) -> bool:
        """Whether a plan store stands there."""
        return (self.root / "entries").is_dir()

    def current(self) -> Published | None:
        """What is in force; ``None`` = nothing was published yet.

        Where the pointer or its plan is damaged, the newest version that is whole.

        Raises:
            PlanFileError: There are versions, and none of them is whole.
        """
        entry = self._pointed()
        if entry is not None:
            try:
                return self._with_plan(entry)
            except PlanFileError:
                entry = None
        failed: PlanFileError | None = None
        for version in self.versions():
            try:
                return self.version(version)
            except PlanFileError as error:
                failed = error
        if failed is not None:
            raise failed
        return None

    def version(self, number: int) -> Published:
        """One version.

        Raises:
            PlanFileError: There is none of that number (any more), or it is damaged.
        """
        return self._with_plan(self.entry(number))

    def entry(self, number: int) -> StoreEntry:
        """Entry of one version; raises as :meth:`version`."""
        path = self.root / "entries" / f"{number:09d}.json"
        return entry_from_json(_text(path, f"version {number}"), str(path))

    def versions(self) -> list[int]:
        """Numbers of all versions up to the current one, newest first.

        While the pointer is whole, what lies beyond it was never published.
        """
        pointed = self._pointed()
        found = [int(path.stem) for path in self.root.glob("entries/*.json") if path.stem.isdecimal()]
        return sorted((n for n in found if pointed is None or n <= pointed.version), reverse=True)

    def history(self, before: int | None = None, most: int = 50) -> list[StoreEntry]:
        """The newest ``most`` entries of versions below ``before``, newest first; damaged ones are left out."""
        return list(self._entries(before, most))

    def _entries(self, before: int | None, most: int) -> Iterator[StoreEntry]:
        given = 0
        for number in self.versions():
            if given >= most:
                return
            if before is not None and number >= before:
                continue
            try:
                entry = self.entry(number)
            except PlanFileError:
                continue
            given += 1
            yield entry

    def _pointed(self) -> StoreEntry | None:
        path = self.root / POINTER
        if not path.exists():
            return None
        try:
            return entry_from_json(_text(path, "the pointer"), str(path))
        except PlanFileError:
            return None

    def _with_plan(self, entry: StoreEntry) -> Published:
        path = self.root / "plans" / entry.file
        text = _text(path, f"plan of version {entry.version}")
        if hashlib.sha256(text.encode()).hexdigest() != entry.sha256:
            raise PlanFileError("damaged: another digest than its entry says", source=str(path))
        return Published(entry, plan_from_json(text, str(path)))


def _text(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise PlanFileError(f"{what} cannot be read: {why}", source=str(path)) from error
