"""All trace formats by name, recognised by content, and the one way to open a trace."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

from data.errors import TraceError
from data.traces.formats import Head, TraceFormat
from data.traces.options import TraceOptions
from data.traces.report import ReadReport
from data.traces.source import TextSource
from data.types import TraceBatch

FORMATS = {
    "agentic": "data.traces.agentic",
    "azure": "data.traces.azure",
    "bailian": "data.traces.bailian",
    "burstgpt": "data.traces.burstgpt",
    "mooncake": "data.traces.mooncake",
    "native": "data.traces.native",
    "servegen": "data.traces.servegen",
    "vllm_bench": "data.traces.vllm_bench",
}
"""Format name to the module whose ``FORMAT`` describes it; a module is imported when it is needed."""


def trace_format(name: str) -> TraceFormat:
    """The format of that name.

    Raises:
        TraceError: There is none.
    """
    if name not in FORMATS:
        raise TraceError("unknown trace format", value=name, expected="one of " + ", ".join(sorted(FORMATS)))
    found = importlib.import_module(FORMATS[name]).FORMAT
    assert isinstance(found, TraceFormat)
    return found


def recognise(source: TextSource) -> tuple[TraceFormat, str]:
    """The one format that the file's content fits, and why.

    Raises:
        TraceError: None fits, or several do; the message names them and why.
    """
    head = Head(source.head())
    fits = [(found, why) for found in map(trace_format, FORMATS) if (why := found.sniff(head)) is not None]
    if len(fits) == 1:
        return fits[0]
    known = "the name of its format, one of " + ", ".join(sorted(FORMATS))
    if not fits:
        start = head.first_line[:60].decode("utf-8", "replace")
        raise TraceError("fits no trace format", source=str(source.path), line=1, value=start, expected=known)
    reasons = "; ".join(f"{found.name} ({why})" for found, why in fits)
    raise TraceError(f"fits several trace formats: {reasons}", source=str(source.path), expected=known)


class TraceReader:
    """One trace being read. ``batches`` can be drawn once; ``report`` is complete when they are exhausted."""

    def __init__(self, source: TextSource, format_: TraceFormat, options: TraceOptions, why: str) -> None:
        self.format = format_
        self.options = options
        self.report = ReadReport(source=str(source.path), format=format_.name)
        self.report.notes.append(f"format {format_.name}: {why}")
        self._source = source

    def batches(self) -> Iterator[TraceBatch]:
        """Rows in order of arrival; turns of closed-loop sessions follow their session's first request.

        Raises:
            TraceError: The trace as a whole cannot be read (to its end).
        """
        return self.format.read(self._source, self.options, self.report)

    @property
    def progress(self) -> tuple[int, int]:
        """Bytes read and bytes in all, of the file as it lies on disk."""
        return self._source.position, self._source.size


def open_trace(path: Path, format: str | None = None, options: TraceOptions | None = None) -> TraceReader:
    """A reader for a trace, its format recognised by content unless it is named.

    Raises:
        TraceError: The file cannot be opened, or its format is not clear.
    """
    source = TextSource(path)
    if format is not None:
        return TraceReader(source, trace_format(format), options or TraceOptions(), "named by the caller")
    found, why = recognise(source)
    return TraceReader(source, found, options or TraceOptions(), why)
