"""Where the requests of a run come from: values that a worker process can open again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from data.errors import TraceError
from data.synth.mix import Stream, mix
from data.traces.context import within_context
from data.traces.length_classes import LengthClasses, class_by_length
from data.traces.options import TraceOptions
from data.traces.registry import open_trace
from data.traces.transform import Assignment, assign, sample_sessions, scale_arrivals
from data.types import TraceBatch

Skipped = tuple[tuple[str, int], ...]
"""(reason, rows) of what a source held but could not give."""


class TraceSource(Protocol):
    """Gives the same requests for the same seed, every time and in every process; must be picklable."""

    @property
    def label(self) -> str:
        """What it is, for people."""
        ...

    @property
    def varies(self) -> str:
        """What differs between seeds, for people."""
        ...

    def batches(self, seed: int, skipped: dict[str, int] | None = None) -> Iterator[TraceBatch]:
        """Requests in order of arrival; ``skipped`` takes the rows that cannot be used, by reason."""
        ...


@dataclass(frozen=True, slots=True)
class FileTrace:
    """A trace file in any known format.

    The seed draws what reading leaves open, such as the place of an arrival inside a coarse tick; the rows are the
    same for every seed.

    Attributes:
        path: The file.
        format: Format name; ``None`` = recognised by content.
        options: How it is read; its seed is replaced by the run's.
    """

    path: str
    format: str | None = None
    options: TraceOptions = field(default_factory=TraceOptions)

    @property
    def label(self) -> str:
        """The file's name."""
        return Path(self.path).name

    @property
    def varies(self) -> str:
        """Little: intervals over seeds say nothing about the traffic of another day."""
        return "engine noise and arrivals inside coarse ticks; the requests of the file stay the same"

    def batches(self, seed: int, skipped: dict[str, int] | None = None) -> Iterator[TraceBatch]:
        """Requests of the file in order of arrival.

        Raises:
            TraceError: The file cannot be read as a trace.
        """
        reader = open_trace(Path(self.path), self.format, replace(self.options, seed=seed))
        yield from reader.batches()
        if skipped is not None:
            for reason, tally in reader.report.rejected.items():
                skipped[str(reason)] = skipped.get(str(reason), 0) + tally.count


@dataclass(frozen=True, slots=True)
class SynthTrace:
    """Synthetic streams merged in order of arrival; the seed draws all of it.

    Attributes:
        streams: Who sends what, and how fast.
        duration_s: Requests arrive in [0, duration), before any change of speed.
        label: What it is, for people.
    """

    streams: tuple[Stream, ...]
    duration_s: float
    label: str

    @property
    def varies(self) -> str:
        """All of it."""
        return "arrivals, lengths, sessions and engine noise"

    def batches(self, seed: int, skipped: dict[str, int] | None = None) -> Iterator[TraceBatch]:  # noqa: ARG002
        """The requests of one seed; none are ever skipped."""
        return mix(self.streams, duration_s=self.duration_s, seed=seed)


@dataclass(frozen=True, slots=True)
class Shaped:
    """Another source at another speed, with names given to requests that have none.

    Attributes:
        source: Where requests come from.
        speed: Factor on the arrival rate; think times of sessions stay.
        names: Rules that fill blank columns in fixed shares; see ``data.traces.transform.assign``.
        classes: Gives each request a class by the length of its prompt; ``None`` = the trace's own.
        sample: Share of the sessions that take part, drawn by the seed (0 to 1). Below 1, the seeds of a trace
            file differ in who comes, not only in noise, so their spread says something about another day.
        context_tokens: Requests that do not fit, and the turns that hang on them, are left out and counted as
            skipped; ``None`` = the fleet refuses what does not fit.
    """

    source: TraceSource
    speed: float = 1.0
    names: tuple[Assignment, ...] = ()
    classes: LengthClasses | None = None
    sample: float = 1.0
    context_tokens: int | None = None

    @property
    def label(self) -> str:
        """The label of what it shapes."""
        return self.source.label

    @property
    def varies(self) -> str:
        """What varies in what it shapes."""
        return self.source.varies

    def batches(self, seed: int, skipped: dict[str, int] | None = None) -> Iterator[TraceBatch]:
        """The source's requests, shaped."""
        rows = self.source.batches(seed, skipped)
        if self.context_tokens is not None:
            rows = within_context(rows, self.context_tokens, skipped)
        if self.sample < 1.0:
            rows = sample_sessions(rows, self.sample, seed)
        if self.classes is not None:
            rows = class_by_length(rows, self.classes)
        if self.names:
            rows = assign(rows, self.names, seed)
        return rows if self.speed == 1.0 else scale_arrivals(rows, self.speed)


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """What a source offers with one seed.

    Attributes:
        source: Its label.
        requests: Requests in it.
        span_s: First to last recorded arrival, seconds, at the speed that is run.
        input_tokens: Prompt tokens of all requests.
        output_tokens: Output tokens of all requests.
        speed: Factor on the arrival rate of the source.
        skipped_rows: Rows of the source that could not be used, by reason.
    """

    source: str
    requests: int
    span_s: float
    input_tokens: int
    output_tokens: int
    speed: float = 1.0
    skipped_rows: Skipped = ()


def trace_facts(source: Shaped, seed: int) -> TraceFacts:
    """Read a source once and say what it offers.

    Raises:
        TraceError: It cannot be read, or holds no request.
    """
    requests = inputs = outputs = 0
    first, last = np.inf, -np.inf
    skipped: dict[str, int] = {}
    for batch in source.batches(seed, skipped):
        requests += len(batch)
        inputs += int(batch.input_tokens.sum())
        outputs += int(batch.output_tokens.sum())
        if len(batch):
            first = min(first, float(batch.arrival_s.min()))
            last = max(last, float(batch.arrival_s.max()))
    if requests == 0:
        raise TraceError("holds no usable request", source=source.label, expected="at least one")
    rows = tuple(sorted(skipped.items()))
    return TraceFacts(source.label, requests, last - first, inputs, outputs, source.speed, rows)
