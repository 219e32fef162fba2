"""One synthetic stream from one origin: sessions are drawn as time goes on, requests come out in arrival order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from data.synth.arrivals import build_rate
from data.synth.assign import Assignment
from data.synth.blocks import Segments, concat
from data.synth.profile import TraceProfile
from data.synth.sessions import Keys, Turns, draw_sessions, mean_turns
from data.types import FloatArray, IntArray

CHUNK_REQUESTS = 4096
"""Sessions are drawn for about this many requests at once."""


def words(*labels: str | int) -> list[int]:
    """Four 32-bit words that stand for these labels, the same on every machine."""
    digest = hashlib.sha256("\x1f".join(map(str, labels)).encode()).digest()
    return [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4)]


@dataclass(frozen=True, slots=True)
class StreamPart:
    """One origin's part of a stream, with everything that decides its draws."""

    profile: TraceProfile
    assign: Assignment
    label: str
    origin: str
    rate_per_s: float


class OriginStream:
    """Gives out the requests of one origin, slice by slice.

    Its draws depend on the seed, its label and its origin alone: other streams, the rate and the length of the
    trace change none of them. Memory holds the sessions that are under way.

    Args:
        part: What to draw.
        duration_s: Requests arrive in [0, duration).
        seed: Seed of the whole trace.
    """

    def __init__(self, part: StreamPart, duration_s: float, seed: int) -> None:
        self.part = part
        profile = part.profile
        root = np.random.SeedSequence([seed, *words(part.label, part.origin)])
        gaps, levels, sessions = (np.random.default_rng(child) for child in root.spawn(3))
        self._rng = sessions
        self._keys = Keys(
            own=_word64("own", seed, part.label, part.origin),
            shared=_word64("shared", profile.name, part.assign.tenant, part.assign.model),
        )
        turns = mean_turns(profile)
        spells = tuple(spell for spell in part.assign.hot_spells if spell.origin == part.origin)
        rate = build_rate(
            part.rate_per_s / turns,
            -profile.warm_up_s,
            duration_s,
            diurnal=part.assign.diurnal,
            levels=profile.levels,
            hot=spells,
            rng=levels,
        )
        self._chunks: Iterator[FloatArray] = rate.starts(profile.gaps, gaps, max(16, int(CHUNK_REQUESTS / turns)))
        self._duration_s = duration_s
        self._drawn_until_s = -np.inf
        self._sessions = 0
        self._waiting: list[Turns] = []

    def take_until(self, until_s: float) -> Turns:
        """Requests that arrive before ``until_s`` and were not taken yet, in arrival order."""
        while self._drawn_until_s < until_s:
            self._draw()
        if not self._waiting:
            return _empty()
        turns = _join(self._waiting)
        due = turns.at_s < until_s
        self._waiting = [_take(turns, np.flatnonzero(~due))]
        now = _take(turns, np.flatnonzero(due))
        return _take(now, np.lexsort((now.turn, now.session, now.at_s)))

    def _draw(self) -> None:
        """Draw the next chunk of sessions; keep of it what the trace can show."""
        starts = next(self._chunks, None)
        if starts is None:
            self._drawn_until_s = np.inf
            return
        turns = draw_sessions(self.part.profile, starts, self._sessions, self._keys, self._rng)
        self._sessions += len(starts)
        shown = (turns.at_s >= 0) & (turns.at_s < self._duration_s)
        self._waiting.append(_take(turns, np.flatnonzero(shown)))
        self._drawn_until_s = float(starts[-1])


def _word64(*labels: str | int) -> np.uint64:
    low, high = words(*labels)[:2]
    return np.uint64(low | high << 32)


def _take(turns: Turns, rows: IntArray) -> Turns:
    return Turns(
        turns.session[rows],
        turns.turn[rows],
        turns.last[rows],
        turns.at_s[rows],
        turns.think_s[rows],
        turns.input_tokens[rows],
        turns.output_tokens[rows],
        turns.segments.take(rows),
    )


def _join(parts: list[Turns]) -> Turns:
    if len(parts) == 1:
        return parts[0]
    return Turns(
        np.concatenate([part.session for part in parts]),
        np.concatenate([part.turn for part in parts]),
        np.concatenate([part.last for part in parts]),
        np.concatenate([part.at_s for part in parts]),
        np.concatenate([part.think_s for part in parts]),
        np.concatenate([part.input_tokens for part in parts]),
        np.concatenate([part.output_tokens for part in parts]),
        concat([part.segments for part in parts]),
    )


def _empty() -> Turns:
    whole, real = np.zeros(0, dtype=np.int64), np.zeros(0)
    segments = Segments(np.zeros(1, dtype=np.int64), whole, np.zeros(0, dtype=np.uint64))
    return Turns(whole, whole, np.zeros(0, dtype=bool), real, real, whole, whole, segments)
