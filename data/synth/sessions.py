"""Draws sessions and lays out their requests: lengths, times and what each prompt shares with the one before."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from data.synth.blocks import Segments, mix64, spans
from data.synth.profile import SessionKind, TraceProfile
from data.types import FloatArray, IntArray

BoolArray = npt.NDArray[np.bool_]
_BRANCH_BITS = 20
"""A session's text has a key for each of its branches: fewer than 2^20."""
_ROUNDING = 1e-9
"""Whole numbers of turns stay whole through the logarithms of a quantile table."""
_MEAN_TURNS_SEED = 20_240_229
_MEAN_TURNS_SESSIONS = 20_000


@dataclass(frozen=True, slots=True)
class Turns:
    """Requests of some sessions, session by session, turn by turn.

    Attributes:
        session: Number of the session.
        turn: 0 for its first request.
        last: Whether it is the session's last one.
        at_s: Recorded arrival.
        think_s: Gap that led to it (0 for a first turn).
        segments: What its prompt is made of.
    """

    session: IntArray
    turn: IntArray
    last: BoolArray
    at_s: FloatArray
    think_s: FloatArray
    input_tokens: IntArray
    output_tokens: IntArray
    segments: Segments


@dataclass(frozen=True, slots=True)
class Keys:
    """Seeds of the block ids: ``own`` for what only this stream says, ``shared`` for its system prompts."""

    own: np.uint64
    shared: np.uint64


def draw_sessions(
    profile: TraceProfile, starts_s: FloatArray, first_session: int, keys: Keys, rng: np.random.Generator
) -> Turns:
    """Sessions that start at these times; one call draws the same whatever the times are."""
    plan = _plan(profile, len(starts_s), rng)
    session = np.repeat(np.arange(len(starts_s)), plan.turns)
    kept = plan.inputs > 0
    last = np.append((plan.turn[1:] == 0) | ~kept[1:], True)
    segments = _segments(plan, profile.block_tokens, first_session, keys)
    at_s = starts_s[session] + _elapsed_s(plan, profile.service_s)
    rows = np.flatnonzero(kept)
    return Turns(
        session=session[rows] + first_session,
        turn=plan.turn[rows],
        last=last[rows],
        at_s=at_s[rows],
        think_s=np.where(plan.turn > 0, plan.draws.gap_s, 0.0)[rows],
        input_tokens=plan.inputs[rows],
        output_tokens=plan.draws.output_tokens[rows],
        segments=segments.take(rows),
    )


@lru_cache(maxsize=64)
def mean_turns(profile: TraceProfile) -> float:
    """Mean requests of a session, from a fixed draw of 20,000 sessions (relative error about 1 %)."""
    plan = _plan(profile, _MEAN_TURNS_SESSIONS, np.random.default_rng(_MEAN_TURNS_SEED))
    return int((plan.inputs > 0).sum()) / _MEAN_TURNS_SESSIONS


@dataclass(frozen=True, slots=True)
class _Plan:
    """Sessions before they have a start: the first three columns by session, the others turn by turn.

    ``inputs`` is 0 from the turn on that would outgrow the limit; ``branch`` is the token at which a turn leaves
    the session's earlier text, −1 where it goes on.
    """

    turns: IntArray
    prefix: IntArray
    prefix_tokens: IntArray
    turn: IntArray
    draws: _Draws
    inputs: IntArray
    branch: IntArray


def _plan(profile: TraceProfile, n: int, rng: np.random.Generator) -> _Plan:
    kind_of = _choose(rng, [kind.weight for kind in profile.kinds], n)
    prefix = _choose(rng, [prefix.weight for prefix in profile.prefixes] or [1.0], n)
    prefix_tokens = np.array([prefix.tokens for prefix in profile.prefixes] or [0], dtype=np.int64)[prefix]
    turns = np.zeros(n, dtype=np.int64)
    for i, kind in enumerate(profile.kinds):
        chosen = kind_of == i
        turns[chosen] = kind.turns.sample(rng, int(chosen.sum())) + _ROUNDING
    turn = spans(np.zeros(n, dtype=np.int64), turns)
    draws = _draw_turns(profile, np.repeat(kind_of, turns), turn, rng)
    limits = np.array([kind.max_input_tokens for kind in profile.kinds])[kind_of]
    inputs, branch = _lay_out(draws, turns, prefix_tokens, limits)
    return _Plan(turns, prefix, prefix_tokens, turn, draws, inputs, branch)


def _elapsed_s(plan: _Plan, service_s: tuple[float, float]) -> FloatArray:
    """Time of every turn after its session's start: gaps, and in closed loops the service before them."""
    serving = service_s[0] + service_s[1] * plan.draws.output_tokens
    steps = np.where(plan.turn > 0, plan.draws.gap_s + np.roll(serving, 1), 0.0)
    running = np.cumsum(steps)
    begin = np.cumsum(plan.turns) - plan.turns
    elapsed: FloatArray = running - np.repeat(running[begin], plan.turns)
    return elapsed


@dataclass(frozen=True, slots=True)
class _Draws:
    """Independent draws of every turn; what a turn does not need is drawn all the same."""

    first_tokens: IntArray
    output_tokens: IntArray
    gap_s: FloatArray
    added_tokens: IntArray
    edited: BoolArray
    keep: FloatArray
    of_first: BoolArray


def _choose(rng: np.random.Generator, weights: list[float], n: int) -> IntArray:
    edges = np.cumsum(weights) / np.sum(weights)
    chosen: IntArray = np.searchsorted(edges[:-1], rng.random(n), side="right")
    return chosen


def _draw_turns(profile: TraceProfile, kind_of: IntArray, turn: IntArray, rng: np.random.Generator) -> _Draws:
    n = len(turn)
    draws = _Draws(
        first_tokens=np.zeros(n, dtype=np.int64),
        output_tokens=np.zeros(n, dtype=np.int64),
        gap_s=np.zeros(n),
        added_tokens=np.zeros(n, dtype=np.int64),
        edited=np.zeros(n, dtype=bool),
        keep=np.zeros(n),
        of_first=np.zeros(n, dtype=bool),
    )
    for i, kind in enumerate(profile.kinds):
        _draw_kind(kind, np.flatnonzero(kind_of == i), turn, draws, rng)
    return draws


def _draw_kind(kind: SessionKind, rows: IntArray, turn: IntArray, draws: _Draws, rng: np.random.Generator) -> None:
    n = len(rows)
    later = turn[rows] > 0
    draws.first_tokens[rows] = np.maximum(kind.first_input_tokens.sample(rng, n).round(), 1)
    probability = rng.random(n)
    output = kind.output_tokens.at(probability)
    if kind.later_output_tokens is not None:
        output = np.where(later, kind.later_output_tokens.at(probability), output)
    draws.output_tokens[rows] = np.maximum(output.round(), 1)
    draws.gap_s[rows] = kind.gap_s.sample(rng, n)
    added = kind.added_tokens.sample(rng, n)
    if kind.edits is not None:
        edited = later & (rng.random(n) < kind.edits.share)
        draws.edited[rows] = edited
        draws.of_first[rows] = kind.edits.of_first
        draws.keep[rows] = kind.edits.keep.sample(rng, n)
        added = np.where(edited, kind.edits.added_tokens.sample(rng, n), added)
    draws.added_tokens[rows] = np.maximum(added.round(), 1)


def _lay_out(
    draws: _Draws, turns: IntArray, prefix_tokens: IntArray, limits: IntArray
) -> tuple[IntArray, IntArray]:
    """Prompt length of every turn, 0 once a session has outgrown the limit, and where it branches (−1: nowhere).

    Works turn by turn over all sessions that have one.
    """
    begin = np.cumsum(turns) - turns
    inputs = np.zeros(len(draws.first_tokens), dtype=np.int64)
    branch = np.full(len(inputs), -1, dtype=np.int64)
    alive = np.flatnonzero(turns > 0)
    first = np.clip(draws.first_tokens[begin], prefix_tokens + 1, limits)
    for k in range(int(turns.max(initial=0))):
        alive = alive[turns[alive] > k]
        row = begin[alive] + k
        if k == 0:
            inputs[row] = first[alive]
            continue
        history = inputs[row - 1] + draws.output_tokens[row - 1]
        base = np.where(draws.of_first[row], first[alive], inputs[row - 1])
        kept = np.minimum(np.maximum((draws.keep[row] * base).astype(np.int64), prefix_tokens[alive]), base)
        edited = draws.edited[row]
        length = np.where(edited, kept, history) + draws.added_tokens[row]
        fits = length <= limits[alive]
        inputs[row[fits]] = length[fits]
        branch[row[edited]] = kept[edited]
        alive = alive[fits]
    return inputs, branch


def _segments(plan: _Plan, block_tokens: int, first_session: int, keys: Keys) -> Segments:
    """Segments of every turn: the shared prefix, the session's own text, then whatever branched off and stayed."""
    shared_keys = mix64(keys.shared + plan.prefix.astype(np.uint64)).tolist()
    prefix_blocks = (plan.prefix_tokens // block_tokens).tolist()
    branches = (plan.branch // block_tokens).tolist()  # −1 stays −1
    offsets = [0]
    segments: list[tuple[int, int, bool]] = []
    row = 0
    for i, count in enumerate(plan.turns.tolist()):
        own, prefix = (first_session + i) << _BRANCH_BITS, prefix_blocks[i]
        stack = [(0, shared_keys[i], False), (prefix, own, True)] if prefix else [(0, own, True)]
        for k in range(count):
            if branches[row] >= 0:
                block = max(branches[row], prefix)
                stack = [part for part in stack if part[0] < block]
                stack.append((block, own + k, True))
            row += 1
            segments += stack
            offsets.append(len(segments))
    start, key, private = zip(*segments, strict=True)
    raw = np.array(key, dtype=np.uint64)
    return Segments(
        np.array(offsets, dtype=np.int64),
        np.array(start, dtype=np.int64),
        np.where(np.array(private, dtype=np.bool_), mix64(raw ^ keys.own), raw),
    )
