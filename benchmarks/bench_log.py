"""Cost of the decision and outcome log, and of making up traces, in processor time of one core."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data.log.reader import LogReader
from data.log.schema import DECISIONS, OUTCOMES
from data.log.settings import LogSettings
from data.log.writer import LogWriter
from data.outcome_sink import RecordSink
from data.synth.mix import synthesise
from data.synth.profiles import PROFILES

Row = dict[str, Any]
WRITE_TARGET_US = 4.0


def rows(quick: bool) -> list[Row]:
    """Rows of the result table."""
    requests = 100_000 if quick else 1_000_000
    return [*_log(requests), *_synthesis(100_000)]


def _log(requests: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        spent_s = _write(root, requests)
        write_us = 1e6 * spent_s / (2 * requests)
        yield {
            "id": "log_write_us_per_row",
            "area": "log",
            "value": write_us,
            "unit": "us/row",
            "reference": "decisions and outcomes, files included",
            "ratio": write_us / WRITE_TARGET_US,
            "target": f"<= {WRITE_TARGET_US:g}",
            "met": write_us <= WRITE_TARGET_US,
        }
        size = sum(file.stat().st_size for file in root.glob("*/hour=*/*.parquet"))
        yield _plain("log_bytes_per_request", size / requests, "bytes")
        began_s = time.process_time()
        read = sum(len(window) for window in LogReader(root).iter_windows(3600.0))
        yield _plain("log_read_joined_per_s", read / (time.process_time() - began_s), "rows/s")


class _Nowhere:
    """A sink that drops its rows: what making them costs."""

    def decision(self, row: Row) -> None:
        """Drop the row."""

    def outcome(self, row: Row) -> None:
        """Drop the row."""


def _write(root: Path, requests: int) -> float:
    """Processor time of recording both rows of each request, less that of making them.

    Rows die as soon as they are recorded, as in the simulator. The first conversion of a process loads parts of
    Arrow for 0.2 s: a first small log takes that out.
    """
    _record(LogWriter(root / "first"), 1)
    with LogWriter(root, LogSettings(rotate_age_s=None), writer_id="bench") as log:
        recording_s = _record(log, requests)
    return recording_s - _record(_Nowhere(), requests)


def _record(sink: RecordSink, requests: int) -> float:
    began_s = time.process_time()
    for k in range(requests):
        sink.decision(_decision(k))
        sink.outcome(_outcome(k))
    if isinstance(sink, LogWriter):
        sink.close()
    return time.process_time() - began_s


def _value(field: Any, k: int) -> Any:
    """A value of the column's own type, the type that the router and the simulator give."""
    kind = str(field.type)
    if "dictionary" in kind:
        return f"n{k % 7}"
    return k % 997 if "int" in kind else (k % 997) * 0.37


_DECISIONS: list[Row] = [{field.name: _value(field, k) for field in DECISIONS} for k in range(997)]
_OUTCOMES: list[Row] = [{field.name: _value(field, k) for field in OUTCOMES} for k in range(997)]


def _decision(k: int) -> Row:
    return {
        **_DECISIONS[k % len(_DECISIONS)],
        "request_id": k,
        "attempt": 0,
        "decided_s": k * 0.05,
        "degraded": None,
    }


def _outcome(k: int) -> Row:
    return {
        **_OUTCOMES[k % len(_OUTCOMES)],
        "request_id": k,
        "attempt": 0,
        "finished_s": k * 0.05 + 3.0,
        "status": 0,
        "reason": None,
    }


def _synthesis(requests: int) -> Iterator[Row]:
    for name, profile in PROFILES.items():
        began_s = time.process_time()
        made = sum(
            len(batch) for batch in synthesise(profile, rate_per_s=10.0, duration_s=requests / 10.0, seed=0)
        )
        yield _plain(f"synth_{name}_per_s", made / (time.process_time() - began_s), "requests/s")


def _plain(name: str, value: float, unit: str) -> Row:
    return {
        "id": name,
        "area": "log",
        "value": value,
        "unit": unit,
        "reference": None,
        "ratio": None,
        "target": None,
        "met": None,
    }
