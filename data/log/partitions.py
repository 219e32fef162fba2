"""Where the log's files lie: ``root/<table>/hour=YYYYMMDDHH/part-<writer>-<number>.parquet``.

The hour is that of the row's own clock, as seconds since the epoch in UTC; a simulated clock that starts at 0
begins at ``hour=1970010100``. Files appear whole under their name (written aside, then renamed), so listing a
partition never shows a half file.
"""

from __future__ import annotations

import datetime
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from data.errors import LogError

HOUR_S = 3600
TABLES = ("decisions", "outcomes")
_HOUR_NAME = re.compile(r"hour=(\d{10})")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LAST_HOUR = int((datetime.datetime(9999, 12, 31, 23, tzinfo=datetime.UTC) - _EPOCH).total_seconds()) // HOUR_S
STALE_ASIDE_S = 3600.0
"""An unfinished file this much older than the newest whole one was left by a writer that died."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One hour of one table. ``hour`` counts whole hours since the epoch."""

    table: str
    hour: int
    path: Path

    @property
    def since_s(self) -> float:
        """Start of the hour, seconds since the epoch."""
        return float(self.hour * HOUR_S)

    @property
    def until_s(self) -> float:
        """End of the hour, not included."""
        return float((self.hour + 1) * HOUR_S)

    def files(self) -> list[Path]:
        """The whole files of this hour, sorted by name; empty when it has been pruned meanwhile."""
        return sorted(self.path.glob("part-*.parquet"))


def partition_name(hour: int) -> str:
    """Folder name of the hour that starts ``hour * 3600`` seconds after the epoch.

    Raises:
        LogError: The hour lies before 1970 or after 9999.
    """
    if not 0 <= hour <= _LAST_HOUR:
        raise LogError("hour out of range", value=hour, expected=f"0 to {_LAST_HOUR} hours since the epoch")
    return (_EPOCH + datetime.timedelta(hours=hour)).strftime("hour=%Y%m%d%H")


def hour_in_range(hour: float) -> bool:
    """Whether rows of this hour can be filed."""
    return 0 <= hour <= _LAST_HOUR


def parse_partition_name(name: str) -> int | None:
    """Hours since the epoch of a partition's folder name; ``None`` for any other name."""
    match = _HOUR_NAME.fullmatch(name)
    if match is None:
        return None
    try:
        start = datetime.datetime.strptime(match[1], "%Y%m%d%H").replace(tzinfo=datetime.UTC)
    except ValueError:
        return None
    return int((start - _EPOCH).total_seconds()) // HOUR_S


def list_partitions(root: Path, table: str) -> list[Partition]:
    """Partitions of one table that stand now, oldest first; folders with other names are left alone."""
    folder = root / table
    if not folder.is_dir():
        return []
    found = []
    for entry in folder.iterdir():
        hour = parse_partition_name(entry.name)
        if hour is not None and entry.is_dir():
            found.append(Partition(table, hour, entry))
    return sorted(found, key=lambda partition: partition.hour)


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What a prune removed: whole partitions, their files and bytes, and files left unfinished by dead writers."""

    partitions: int = 0
    files: int = 0
    bytes: int = 0
    unfinished: int = 0


def prune(root: Path, *, keep_s: float | None = None, keep_bytes: int | None = None) -> PruneReport:
    """Remove the oldest whole hours of the log.

    The newest hour always stays, whatever the limits. Decisions and outcomes of one hour go together.

    Args:
        root: Folder of the log.
        keep_s: Keep hours that end less than this many seconds before the end of the newest one (> 0).
        keep_bytes: Keep the newest hours whose files add up to at most this many bytes (> 0).

    Raises:
        LogError: Neither limit was given, or one is not above 0.
    """
    if keep_s is None and keep_bytes is None:
        raise LogError("nothing to prune by", expected="keep_s, keep_bytes or both")
    for name, value in (("keep_s", keep_s), ("keep_bytes", keep_bytes)):
        if value is not None and not value > 0:
            raise LogError("limit out of range", field=name, value=value, expected="a number above 0")
    expired = [partition for group in _expired(_by_hour(root), keep_s, keep_bytes) for partition in group]
    files = [file for partition in expired for file in partition.files()]
    size = sum(file.stat().st_size for file in files)
    for partition in expired:
        shutil.rmtree(partition.path)
    return PruneReport(len(expired), len(files), size, _remove_unfinished(root))


def _by_hour(root: Path) -> list[list[Partition]]:
    """Partitions grouped by hour, newest hour first."""
    hours: dict[int, list[Partition]] = {}
    for table in TABLES:
        for partition in list_partitions(root, table):
            hours.setdefault(partition.hour, []).append(partition)
    return [hours[hour] for hour in sorted(hours, reverse=True)]


def _expired(
    groups: list[list[Partition]], keep_s: float | None, keep_bytes: int | None
) -> Iterator[list[Partition]]:
    if not groups:
        return
    newest_s = groups[0][0].until_s
    held = 0
    for position, group in enumerate(groups):
        held += sum(file.stat().st_size for partition in group for file in partition.files())
        too_old = keep_s is not None and newest_s - group[0].until_s >= keep_s
        too_big = keep_bytes is not None and held > keep_bytes
        if position > 0 and (too_old or too_big):
            yield group


def _remove_unfinished(root: Path) -> int:
    """Remove files that a dead writer left aside; age is told by the newest whole file, not by a clock."""
    whole = [file.stat().st_mtime for table in TABLES for file in (root / table).glob("hour=*/part-*.parquet")]
    if not whole:
        return 0
    stale = [
        file
        for table in TABLES
        for file in (root / table).glob("hour=*/.part-*.aside")
        if file.stat().st_mtime < max(whole) - STALE_ASIDE_S
    ]
    for file in stale:
        file.unlink(missing_ok=True)
    return len(stale)
