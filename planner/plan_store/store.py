"""Publishes plans into a store: whole or not at all, and only by the planner that leads."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from data.atomic_file import write_text_atomic
from data.errors import PlanFileError, SettingError
from data.plan import PlanDocument
from data.plan_io import plan_to_json
from planner.plan_store.entry import Baseline, EntryKind, StoreEntry, entry_to_json
from planner.plan_store.file_lock import locked
from planner.plan_store.layout import LINK, POINTER, Published, StoreFolder
from planner.plan_store.leader import WAIT_S, Leader

KEEP_VERSIONS = 500
LEASE_S = 120.0


class PlanStore:
    """Writes a plan store; see :class:`planner.plan_store.layout.StoreFolder` for reading one.

    Args:
        root: Folder of the store, made when missing.
        keep_versions: Versions that stay readable (2 or more).
        lease_s: Time after which a planner that does not renew may be replaced (above 0).

    Raises:
        SettingError: An argument is out of its range.
        OSError: The folder cannot be made.
    """

    def __init__(self, root: Path, *, keep_versions: int = KEEP_VERSIONS, lease_s: float = LEASE_S) -> None:
        if keep_versions < 2:
            raise SettingError("out of range", field="keep_versions", value=keep_versions, expected="2 or more")
        if not lease_s > 0:
            raise SettingError("out of range", field="lease_s", value=lease_s, expected="above 0")
        for name in ("entries", "plans", "locks"):
            (root / name).mkdir(parents=True, exist_ok=True)
        self.folder = StoreFolder(root)
        self.leader = Leader(root, lease_s)
        self._root = root
        self._keep = keep_versions

    def current(self) -> Published | None:
        """What is in force; see :meth:`StoreFolder.current`."""
        return self.folder.current()

    def lead(self, now_s: float) -> bool:
        """Become or stay the planner that may publish; whether it is. A new leader mends the link."""
        before = self.leader.epoch
        leads = self.leader.take(now_s)
        if leads and self.leader.epoch != before:
            self._mend()
        return leads

    def publish(
        self,
        plan: PlanDocument,
        now_s: float,
        *,
        kind: EntryKind = EntryKind.PUBLISHED,
        reason: str = "",
        restores: int | None = None,
        baseline: Baseline | None = None,
    ) -> StoreEntry:
        """Make ``plan`` the current one.

        Raises:
            NotLeaderError: Another planner leads.
            PlanFileError: The plan breaks a rule of the document, or the store is damaged.
            TimeoutError: Another process holds the store's lock and hangs.
            OSError: The store cannot be written; what was in force stays.
        """
        text = plan_to_json(plan)
        with locked(self._root / "locks" / "store", WAIT_S):
            self.leader.check()
            version = max(self.folder.versions(), default=0) + 1
            entry = StoreEntry(
                version,
                self.leader.epoch,
                plan.plan_id,
                f"{version:09d}-{_file_text(plan.plan_id)}.json",
                hashlib.sha256(text.encode()).hexdigest(),
                now_s,
                kind,
                reason,
                restores,
                baseline,
            )
            self._write(entry, text)
        return entry

    def roll_back(self, now_s: float, reason: str, version: int | None = None) -> StoreEntry:
        """Put an earlier plan back, without solving anything.

        Args:
            now_s: Seconds since the epoch.
            reason: Why.
            version: Which one; ``None`` = the newest other plan before the current one.

        Raises:
            PlanFileError: There is no such version, or nothing to go back to.
            NotLeaderError: Another planner leads.
        """
        target = self.before_current() if version is None else self.folder.version(version)
        if target is None:
            raise PlanFileError("no earlier plan to go back to", source=str(self._root))
        plan = renewed(target.plan, now_s)
        return self.publish(plan, now_s, kind=EntryKind.ROLLED_BACK, reason=reason, restores=target.entry.version)

    def before_current(self) -> Published | None:
        """The newest whole version with another plan than the current one that was in force before it.

        Plans that a roll-back has taken out of force since are passed over.
        """
        current = self.folder.current()
        if current is None:
            return None
        at = current.entry.version
        while at > 0:
            entry = self._entry(at)
            if entry is not None and entry.restores is not None:
                # What lies between a roll-back and the version that it restored was taken out of force.
                at = min(entry.restores, at - 1)
                continue
            if entry is not None and entry.plan_id != current.plan.plan_id:
                try:
                    return self.folder.version(at)
                except PlanFileError:
                    pass
            at -= 1
        return None

    def _entry(self, number: int) -> StoreEntry | None:
        try:
            return self.folder.entry(number)
        except PlanFileError:
            return None

    def _write(self, entry: StoreEntry, text: str) -> None:
        """The order matters: nothing refers to a file before the file is whole."""
        pointed = entry_to_json(entry)
        write_text_atomic(self._root / "plans" / entry.file, text)
        write_text_atomic(self._root / "entries" / f"{entry.version:09d}.json", pointed)
        for name in ("plans", "entries"):
            _sync_folder(self._root / name)
        write_text_atomic(self._root / POINTER, pointed)
        _sync_folder(self._root)
        self._link(entry.file)
        self._prune(entry.version)

    def _link(self, file: str) -> None:
        aside = self._root / f".{LINK}.{os.getpid()}.part"
        aside.unlink(missing_ok=True)
        aside.symlink_to(f"plans/{file}")
        aside.replace(self._root / LINK)

    def _mend(self) -> None:
        """After a crash of another planner: the link points at the current plan, parts of files are gone."""
        with locked(self._root / "locks" / "store", WAIT_S):
            current = self.folder.current()
            if current is not None:
                self._link(current.entry.file)
            for part in (*self._root.glob(".*.part"), *self._root.glob("*/.*.part")):
                part.unlink(missing_ok=True)

    def _prune(self, newest: int) -> None:
        """Forget versions beyond the kept ones, but never the one that a roll-back would go to."""
        if newest <= self._keep:
            return
        target = self.before_current()
        spared = None if target is None else target.entry.version
        oldest = newest - self._keep
        for path in (*self._root.glob("plans/*.json"), *self._root.glob("entries/*.json")):
            number = path.stem.split("-")[0]
            if number.isdecimal() and int(number) <= oldest and int(number) != spared:
                path.unlink(missing_ok=True)


def renewed(plan: PlanDocument, now_s: float, until_s: float | None = None) -> PlanDocument:
    """The same plan, in force from now until then; ``None`` = for as long as it was made for."""
    start, end = (datetime.fromisoformat(text) for text in (plan.valid_from, plan.valid_until))
    until_s = now_s + (end - start).total_seconds() if until_s is None else max(until_s, now_s)
    return replace(plan, valid_from=utc_text(now_s), valid_until=utc_text(until_s))


def _file_text(plan_id: str) -> str:
    """The id as a part of a file name."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", plan_id)


def utc_text(now_s: float) -> str:
    """A moment as a plan writes it."""
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
