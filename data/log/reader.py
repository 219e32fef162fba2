"""Reads the decision and outcome log a window at a time, also while it is being written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from data.errors import LogError
from data.log.join import join, match
from data.log.partitions import TABLES, Partition, list_partitions
from data.log.versions import SCHEMAS, UPGRADES, ForeignFileError, Upgrade, file_version, upgrade

CLOCKS = {"decisions": "decided_s", "outcomes": "finished_s"}


@dataclass(slots=True)
class ReadReport:
    """What a reader has met so far, over all its windows.

    Attributes:
        decisions: Decision rows given out.
        without_outcome: ... of which no outcome was found within the look-ahead.
        repeated_outcomes: Outcomes beside an earlier one of the same attempt, left out.
        skipped: File to reason, for files that are corrupt or not of the log.
    """

    decisions: int = 0
    without_outcome: int = 0
    repeated_outcomes: int = 0
    skipped: dict[str, str] = field(default_factory=dict)


class LogReader:
    """Joined decisions and outcomes of a log folder.

    Files that cannot be used are skipped, named and counted in ``report``; a file that vanished because the log
    was pruned meanwhile is not a fault.

    Args:
        root: Folder of the log.
        look_ahead_s: Outcomes are searched up to this long after a window's end; a later one counts as none. An
            ``(request_id, attempt)`` must not come back within this time (>= 0).
        upgrades: Steps from older schema versions.

    Raises:
        LogError: There is no log at ``root``, or the look-ahead is negative.
    """

    def __init__(
        self, root: Path, *, look_ahead_s: float = 3600.0, upgrades: Mapping[int, Upgrade] = UPGRADES
    ) -> None:
        if not any((root / table).is_dir() for table in TABLES):
            raise LogError("no log here", source=str(root), expected="a folder with decisions/ and outcomes/")
        if not look_ahead_s >= 0:
            raise LogError("look-ahead out of range", value=look_ahead_s, expected="0 or more seconds")
        self.root = root
        self.look_ahead_s = look_ahead_s
        self.report = ReadReport()
        self._upgrades = upgrades

    def partitions(self) -> list[Partition]:
        """Hours of decisions that stand now, oldest first."""
        return list_partitions(self.root, "decisions")

    def window(self, since_s: float, until_s: float) -> pa.Table:
        """Decisions with ``since_s <= decided_s < until_s`` in time order, each with its outcome.

        The columns are ``data.log.join.JOINED``; a decision without outcome has a null ``status``.

        Raises:
            LogError: Files stand in the window and none can be read, or one has a newer schema.
        """
        decisions = self._rows("decisions", since_s, until_s).sort_by("decided_s")
        outcomes = self._rows("outcomes", since_s, until_s + self.look_ahead_s) if len(decisions) else None
        if outcomes is None:
            outcomes = SCHEMAS["outcomes"].empty_table()
        matched = match(decisions, outcomes)
        self.report.decisions += len(decisions)
        self.report.without_outcome += int((matched.outcome_row < 0).sum())
        self.report.repeated_outcomes += matched.repeated_outcomes
        return join(decisions, outcomes, matched)

    def iter_windows(self, step_s: float) -> Iterator[pa.Table]:
        """All windows ``[k * step_s, (k + 1) * step_s)`` that hold decisions, in order, one in memory at a time.

        Raises:
            LogError: ``step_s`` is not above 0, or as for ``window``.
        """
        if not step_s > 0:
            raise LogError("window out of range", field="step_s", value=step_s, expected="a number above 0")
        following = -math.inf
        for partition in self.partitions():
            first = max(following, math.floor(partition.since_s / step_s))
            following = math.ceil(partition.until_s / step_s)
            for k in range(int(first), following):
                rows = self.window(k * step_s, (k + 1) * step_s)
                if len(rows):
                    yield rows

    def _rows(self, table: str, since_s: float, until_s: float) -> pa.Table:
        """Rows of one table in a window, in file order."""
        pieces = []
        failed = []
        for partition in list_partitions(self.root, table):
            if partition.until_s <= since_s or partition.since_s >= until_s:
                continue
            for file in partition.files():
                rows = self._read(file, table, since_s, until_s)
                if rows is None:
                    failed.append(file)
                else:
                    pieces.append(rows)
        if failed and not pieces:
            reason = self.report.skipped[str(failed[0])]
            raise LogError(f"none of {len(failed)} {table} files can be read: {reason}", source=str(failed[0]))
        return pa.concat_tables([SCHEMAS[table].empty_table(), *pieces]).unify_dictionaries()

    def _read(self, file: Path, table: str, since_s: float, until_s: float) -> pa.Table | None:
        """Rows of one file in a window, none if it was pruned meanwhile; ``None`` if the file cannot be used."""
        try:
            with pq.ParquetFile(file) as parquet:
                version = file_version(parquet.schema_arrow.metadata, table)
                if _outside(parquet.metadata, CLOCKS[table], since_s, until_s):
                    return SCHEMAS[table].empty_table()
                data = upgrade(parquet.read(), table, version, str(file), self._upgrades)
        except FileNotFoundError:
            return SCHEMAS[table].empty_table()
        except (pa.ArrowException, OSError, ForeignFileError) as error:
            self.report.skipped[str(file)] = str(error).splitlines()[0] if str(error) else type(error).__name__
            return None
        clock = data.column(CLOCKS[table])
        return data.filter(pc.and_(pc.greater_equal(clock, since_s), pc.less(clock, until_s)))


def _outside(metadata: pq.FileMetaData, clock: str, since_s: float, until_s: float) -> bool:
    """Whether the file's own statistics say that no row lies in the window."""
    for group in range(metadata.num_row_groups):
        columns = metadata.row_group(group)
        for i in range(columns.num_columns):
            column = columns.column(i)
            if column.path_in_schema == clock:
                statistics = column.statistics
                if statistics is None or not statistics.has_min_max:
                    return False
                if statistics.max >= since_s and statistics.min < until_s:
                    return False
    return True
