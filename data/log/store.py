"""Puts finished parts of the log on disk, whole or not at all."""

from __future__ import annotations

import itertools
import re
import secrets
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from data.errors import LogError
from data.log.partitions import TABLES, partition_name

_WRITER_ID = re.compile(r"[A-Za-z0-9_]{1,40}")


class PartStore:
    """Writes ``part-<writer>-<number>.parquet`` files below a root.

    Args:
        root: Folder of the log; made when missing.
        writer_id: Letters, digits and underscores; ``None`` draws one. With a fixed id the numbers go on after
            the files that stand already.
        compression: Parquet codec.

    Raises:
        LogError: The root cannot be made, or the id is not a name.
    """

    def __init__(self, root: Path, writer_id: str | None, compression: str) -> None:
        self.root = root
        self.writer_id = secrets.token_hex(6) if writer_id is None else writer_id
        if not _WRITER_ID.fullmatch(self.writer_id):
            raise LogError("bad writer id", value=writer_id, expected="1 to 40 letters, digits or underscores")
        self._compression = compression
        try:
            for table in TABLES:
                (root / table).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LogError(f"cannot make the log folder: {error.strerror}", source=str(root)) from error
        self._numbers = itertools.count(self._first_free_number())

    def write(self, table: str, parts: dict[int, pa.Table]) -> int:
        """Write one file for each hour and return how many.

        All are written aside before the first appears under its name, so that a failed write (disk full) leaves
        none of the rows behind and the whole buffer can be tried again.

        Raises:
            OSError: A file could not be written; nothing of these rows stands.
        """
        staged: list[tuple[Path, Path]] = []
        try:
            for hour, part in parts.items():
                folder = self.root / table / partition_name(hour)
                folder.mkdir(parents=True, exist_ok=True)
                name = f"part-{self.writer_id}-{next(self._numbers):06d}.parquet"
                staged.append((folder / f".{name}.aside", folder / name))
                pq.write_table(part, staged[-1][0], compression=self._compression)
        except OSError:
            for aside, _ in staged:
                aside.unlink(missing_ok=True)
            raise
        for aside, final in staged:
            aside.replace(final)
        return len(staged)

    def _first_free_number(self) -> int:
        pattern = re.compile(rf"part-{self.writer_id}-(\d+)\.parquet")
        names = (file.name for table in TABLES for file in (self.root / table).glob("hour=*/part-*.parquet"))
        numbers = [int(match[1]) for match in map(pattern.fullmatch, names) if match]
        return max(numbers, default=-1) + 1
