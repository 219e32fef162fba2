"""Writes the decision and outcome log: a record sink that is cheap enough for a hot loop."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from data.errors import LogError
from data.log.buffer import RowBuffer
from data.log.partitions import TABLES
from data.log.schema import DECISIONS, OUTCOMES
from data.log.settings import LogSettings, WriteReport
from data.log.store import PartStore

RETRY_S = 1.0
"""The background thread waits this long after a write that failed, unless new rows are sealed before."""


class LogWriter:
    """Buffers rows, writes them as whole Parquet files, and loses at most the open buffers in a crash.

    Several writers, in several processes, may share a root: each has its own ``writer_id`` in its file names.
    ``decision`` and ``outcome`` may be called from any thread.

    Args:
        root: Folder of the log; made when missing.
        settings: Rotation and bounds.
        clock: Seconds that only go forward; used for the age of a buffer, never for a row's time.
        writer_id: Letters, digits and underscores; ``None`` draws one.

    Raises:
        LogError: The root cannot be made, or the id is not a name.
    """

    def __init__(
        self,
        root: Path,
        settings: LogSettings | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        writer_id: str | None = None,
    ) -> None:
        self.settings = settings or LogSettings()
        self.report = WriteReport()
        self.root = root
        self._store = PartStore(root, writer_id, self.settings.compression)
        self._clock = clock
        self._buffers = (RowBuffer(DECISIONS, "decided_s"), RowBuffer(OUTCOMES, "finished_s"))
        self._opened_s: list[float | None] = [None, None]
        self._sealed: deque[tuple[int, list[tuple[Any, ...]]]] = deque()
        self._sealed_rows = 0
        self._closed = False
        self._disk = threading.Lock()
        self._work = threading.Condition(threading.Lock())
        self._thread = threading.Thread(target=self._run, name="tokenfleet-log", daemon=True)
        if self.settings.background:
            self._thread.start()

    def decision(self, row: dict[str, Any]) -> None:
        """Record one decision; see ``data.log.schema``.

        Raises:
            LogError: An unknown column, or the writer is closed.
        """
        self._record(0, row)

    def outcome(self, row: dict[str, Any]) -> None:
        """Record how one attempt ended; see ``data.log.schema``.

        Raises:
            LogError: An unknown column, or the writer is closed.
        """
        self._record(1, row)

    def flush(self) -> None:
        """Write everything recorded so far; rows whose file cannot be written stay buffered.

        Raises:
            LogError: A file could not be written.
        """
        with self._work:
            for table in range(len(TABLES)):
                self._seal(table)
        if not self._drain():
            raise LogError(f"cannot write the log: {self.report.last_error}", source=str(self.root))

    def rotate_if_due(self) -> None:
        """Write the buffers that reached their age: for callers that may fall idle without a background thread."""
        with self._work:
            self._seal_aged()
        self._drain()

    def close(self) -> None:
        """Flush and refuse further rows; closing twice is allowed.

        Raises:
            LogError: The last files could not be written; their rows are counted as dropped.
        """
        with self._work:
            already, self._closed = self._closed, True
            self._work.notify_all()
        if already:
            return
        if self.settings.background:
            self._thread.join()
        try:
            self.flush()
        finally:
            self.report.dropped += self._sealed_rows

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _record(self, table: int, row: dict[str, Any]) -> None:
        settings = self.settings
        buffer = self._buffers[table]
        with self._work:
            if self._closed:
                raise LogError("the log writer is closed", source=str(self.root))
            if self._sealed_rows and self._held() >= settings.max_buffered_rows:
                self.report.dropped += 1
                return
            buffer.append(row)
            self.report.taken[table] += 1
            if len(buffer.rows) < settings.rotate_rows and not self._aged(table):
                return
            self._seal(table)
        if not settings.background:
            self._drain()

    def _held(self) -> int:
        return self._sealed_rows + sum(len(buffer.rows) for buffer in self._buffers)

    def _aged(self, table: int) -> bool:
        """Whether a table's open buffer has reached its age; its first row starts the count."""
        age_s = self.settings.rotate_age_s
        if age_s is None:
            return False
        opened_s = self._opened_s[table]
        if opened_s is None:
            self._opened_s[table] = self._clock()
            return False
        return self._clock() - opened_s >= age_s

    def _seal(self, table: int) -> None:
        """Close the open buffer of a table; the caller holds the lock."""
        rows = self._buffers[table].take()
        self._opened_s[table] = None
        if rows:
            self._sealed.append((table, rows))
            self._sealed_rows += len(rows)
            self._work.notify()

    def _seal_aged(self) -> None:
        for table, buffer in enumerate(self._buffers):
            if buffer.rows and self._aged(table):
                self._seal(table)

    def _until_aged_s(self) -> float | None:
        """Time until the older open buffer reaches its age, and at most that age: no row waits for longer."""
        age_s, opened_s = self.settings.rotate_age_s, [at for at in self._opened_s if at is not None]
        if age_s is None or not opened_s:
            return age_s
        return min(max(min(opened_s) + age_s - self._clock(), 0.0), age_s)

    def _drain(self) -> bool:
        """Write sealed rows in order; at the first failure stop, keep them for the next try, return False."""
        with self._disk:
            while self._sealed:
                table, rows = self._sealed[0]
                parts, rejected = self._buffers[table].tables(rows)
                try:
                    files = self._store.write(TABLES[table], parts)
                except OSError as error:
                    self.report.write_errors += 1
                    self.report.last_error = str(error)
                    return False
                with self._work:
                    self._sealed.popleft()
                    self._sealed_rows -= len(rows)
                self.report.rows += sum(len(part) for part in parts.values())
                self.report.files += files
                self.report.rejected.update(rejected)
        return True

    def _run(self) -> None:
        """The background thread: write what is sealed, seal what is aged, until closed."""
        written = True
        while True:
            with self._work:
                if not self._closed and not (self._sealed and written):
                    self._work.wait(timeout=self._until_aged_s() if written else RETRY_S)
                if self._closed:
                    return
                self._seal_aged()
            written = self._drain()
