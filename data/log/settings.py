"""Settings of the log writer and the account it gives of itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from data.errors import SettingError


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How the log is cut into files and how much may wait in memory.

    Attributes:
        rotate_rows: A table's open buffer becomes a file at this many rows (1 to 10,000,000).
        rotate_age_s: ... or at this age of its oldest row on the writer's clock; ``None`` = by rows only, so
            that a run with a seed cuts its files at the same rows each time (> 0).
        max_buffered_rows: Rows of both tables that may wait while files cannot be written; further rows are
            dropped and counted (at least ``rotate_rows``).
        compression: Parquet codec.
        background: Write files on a thread of the writer, so that no caller waits for the disk.
    """

    rotate_rows: int = 50_000
    rotate_age_s: float | None = 60.0
    max_buffered_rows: int = 1_000_000
    compression: Literal["zstd", "snappy", "none"] = "zstd"
    background: bool = False

    def __post_init__(self) -> None:
        checks = (
            ("rotate_rows", 1 <= self.rotate_rows <= 10_000_000, "1 to 10,000,000"),
            ("rotate_age_s", self.rotate_age_s is None or self.rotate_age_s > 0, "above 0, or none"),
            ("max_buffered_rows", self.max_buffered_rows >= self.rotate_rows, "at least rotate_rows"),
            ("compression", self.compression in ("zstd", "snappy", "none"), "zstd, snappy or none"),
        )
        for name, ok, expected in checks:
            if not ok:
                value = getattr(self, name)
                raise SettingError("setting out of range", field=name, value=value, expected=expected)


@dataclass(slots=True)
class WriteReport:
    """What a writer has done so far.

    Attributes:
        rows: Rows that stand in files.
        files: Files written.
        taken: Decisions and outcomes that were recorded, whether they stand in files yet or not.
        dropped: Rows refused because ``max_buffered_rows`` were waiting, or left when the writer closed.
        rejected: Rows that no file can hold (a value that does not fit its column), by reason.
        write_errors: Times that a file could not be written; its rows wait for the next try.
        last_error: What the system said the last time.
    """

    rows: int = 0
    files: int = 0
    dropped: int = 0
    taken: list[int] = field(default_factory=lambda: [0, 0])
    rejected: Counter[str] = field(default_factory=Counter)
    write_errors: int = 0
    last_error: str = ""
