"""Links between the turns of sessions in traces that are read in order of time, in bounded memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from data.traces.chunk import Chunk
from data.traces.options import TraceOptions
from data.traces.report import ReadReport, Repair
from data.types import NO_PARENT, FloatArray, IntArray

KEPT_TURNS = 1_000_000
"""Turns remembered, the latest ones (300 MB when full); a turn whose parent is forgotten starts a session."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a later turn needs to know of an earlier one."""

    request_id: int
    session: str
    finished_s: float


class TurnMemory:
    """The last turns by key (a chat id or a session); the oldest is forgotten first."""

    def __init__(self, kept: int = KEPT_TURNS) -> None:
        self._kept = kept
        self._turns: dict[int | str, Turn] = {}

    def find(self, key: int | str) -> Turn | None:
        """The remembered turn, if there is one."""
        return self._turns.get(key)

    def remember(self, key: int | str, turn: Turn) -> None:
        """Keep this turn as the one of its key, as the youngest of all."""
        self._turns.pop(key, None)
        self._turns[key] = turn
        if len(self._turns) > self._kept:
            del self._turns[next(iter(self._turns))]


class _Links:
    """Shared by both kinds of link: think time and the columns that are filled."""

    def __init__(self, options: TraceOptions, report: ReadReport) -> None:
        self._turns = TurnMemory()
        self._report = report
        self._assumed_tpot_s = options.assumed_tpot_s

    def _finish(
        self, chunk: Chunk, ids: IntArray, parents: list[int], thinks: list[float], sessions: list[str]
    ) -> Chunk:
        parent_id = np.array(parents, dtype=np.int64)
        self._report.repair(Repair.THINK_TIME_DERIVED, chunk.lines[parent_id != NO_PARENT])
        return chunk.with_rows(
            request_id=ids,
            parent_id=parent_id,
            think_time_s=np.array(thinks, dtype=np.float64),
            session_id=sessions,
        )

    def _finished(self, arrival_s: float, service_s: float, output_tokens: int) -> float:
        return arrival_s + (output_tokens * self._assumed_tpot_s if math.isnan(service_s) else service_s)


class SessionLinks(_Links):
    """Closed loop of rows that name their session: each row follows the one before it in its session.

    ``think_time_s`` of the rows holds the recorded service time (NaN = not recorded) when they come in.
    """

    def __init__(self, options: TraceOptions, report: ReadReport) -> None:
        super().__init__(options, report)
        self._next_id = 0

    def link(self, chunk: Chunk) -> Chunk:
        """The rows, in order of arrival, with ids, parents and think times."""
        rows = chunk.rows
        ids = np.arange(self._next_id, self._next_id + len(rows), dtype=np.int64)
        self._next_id += len(rows)
        sessions = list(rows.session_id or ("",) * len(rows))
        parents, thinks = [], []
        columns = zip(
            ids.tolist(),
            sessions,
            rows.arrival_s.tolist(),
            _service_s(chunk),
            rows.output_tokens.tolist(),
            strict=True,
        )
        for request_id, session, at, took, n_out in columns:
            before = self._turns.find(session) if session else None
            parents.append(before.request_id if before else NO_PARENT)
            thinks.append(max(0.0, at - before.finished_s) if before else 0.0)
            if session:
                self._turns.remember(session, Turn(request_id, session, self._finished(at, took, n_out)))
        return self._finish(chunk, ids, parents, thinks, sessions)


class ParentLinks(_Links):
    """Sessions of rows that name their parent; closed loop only if asked for."""

    def __init__(self, options: TraceOptions, report: ReadReport) -> None:
        super().__init__(options, report)
        self._closed = bool(options.closed_loop)

    def link(self, chunk: Chunk) -> Chunk:
        """The rows, in order of arrival, with the session (id of its first request), parents and think times."""
        rows = chunk.rows
        assert rows.parent_id is not None
        parents, thinks, sessions, orphans = [], [], [], []
        columns = zip(
            rows.request_id.tolist(),
            rows.parent_id.tolist(),
            rows.arrival_s.tolist(),
            _service_s(chunk),
            rows.output_tokens.tolist(),
            strict=True,
        )
        for place, (request_id, parent_id, at, took, n_out) in enumerate(columns):
            parent = self._turns.find(parent_id) if parent_id != NO_PARENT else None
            if parent is None and parent_id != NO_PARENT:
                orphans.append(place)
            session = parent.session if parent else str(request_id)
            closed = self._closed and parent is not None
            parents.append(parent_id if closed else NO_PARENT)
            thinks.append(max(0.0, at - parent.finished_s) if closed and parent else 0.0)
            sessions.append(session)
            self._turns.remember(request_id, Turn(request_id, session, self._finished(at, took, n_out)))
        self._report.repair(Repair.PARENT_UNKNOWN, chunk.lines[orphans])
        linked = self._finish(chunk, rows.request_id, parents, thinks, sessions)
        return linked if self._closed else linked.with_rows(parent_id=None, think_time_s=None)


def _service_s(chunk: Chunk) -> list[float]:
    recorded: FloatArray | None = chunk.rows.think_time_s
    return [math.nan] * len(chunk) if recorded is None else recorded.tolist()
