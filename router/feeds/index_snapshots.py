"""Keeps what the prefix index knows from events in a file, for the next process."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

from router.kv_events.fleet_feeds import FleetFeeds
from router.policies.settings import Checked, above
from router.prefix.snapshot_file import RowSnapshot, read_snapshot, write_snapshot

LOG = logging.getLogger("tokenfleet.index_snapshots")


@dataclass(frozen=True, slots=True)
class SnapshotSettings(Checked):
    """How the snapshot is kept.

    Attributes:
        period_s: Pause between two snapshots, seconds.
    """

    period_s: float = above(0.0, 60.0)


class IndexSnapshots:
    """Writes and reads the snapshot of one router.

    Args:
        path: The file.
        scheme: Fingerprint of the scope secret, see ``router.prompts.prefix_scope.scheme_of``.
    """

    def __init__(self, path: Path, scheme: str) -> None:
        self._path = path
        self._scheme = scheme
        self._writing = asyncio.Lock()

    def read(self) -> tuple[RowSnapshot, ...]:
        """What the last process knew; nothing if there is no file or it is of no use, which is logged."""
        loaded = read_snapshot(self._path, self._scheme)
        if loaded.refused == "missing":
            LOG.info("no index snapshot at %s: the index starts empty", self._path)
        elif loaded.refused is not None:
            LOG.warning("index snapshot %s is not used (%s): the index starts empty", self._path, loaded.refused)
        return loaded.rows

    async def write(self, feeds: FleetFeeds) -> int:
        """Write what all rows hold now; how many rows that are. A disk that refuses is logged, never an error."""
        async with self._writing:
            return await self._write(feeds)

    async def _write(self, feeds: FleetFeeds) -> int:
        rows = []
        for row in feeds.rows():
            captured = feeds.capture_row(row)
            if captured is not None:
                rows.append(captured)
            # A row takes about a millisecond; decisions come in between.
            await asyncio.sleep(0)
        try:
            await asyncio.to_thread(write_snapshot, self._path, rows, self._scheme)
        except OSError as error:
            LOG.warning("index snapshot %s cannot be written: %s", self._path, error.strerror)
            return 0
        return len(rows)

    async def keep(self, feeds: FleetFeeds, period_s: float) -> None:
        """Write each ``period_s`` until cancelled."""
        while True:
            await asyncio.sleep(period_s)
            await self.write(feeds)
