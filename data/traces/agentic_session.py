"""One agentic session as columns: who waits for whom, think times, and block ids that are unique over sessions.

Block ids are local to a session, so they are salted with its id. What sessions do share is modelled: the first
``tool_tokens + system_tokens`` of a prompt are its tool definitions and then its system prompt, so those complete
blocks get ids made of the two counts and the position only. Equal tool definitions are recognised by their length.
"""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec
import numpy as np

from data.traces.checks import MAX_TOKENS, budgets
from data.traces.chunk import opaque_ids
from data.traces.hashing import MASK, mix, mix_one, salted, text_hash
from data.traces.options import TraceOptions
from data.traces.report import ReadReport, Reject, Repair
from data.types import NO_PARENT, TraceBatch, UIntArray

MAX_DEPTH = 16
MAX_TIME_S = 1e9


class Call(msgspec.Struct, gc=False):
    """One model call, or a subagent with calls of its own."""

    t: float
    input_tokens: int = msgspec.field(name="in", default=-1)
    output_tokens: int = msgspec.field(name="out", default=-1)
    type: str = ""
    model: str = ""
    hash_ids: list[int] | None = None
    api_time: float | None = None
    think_time: float | None = None
    duration_ms: float | None = None
    tool_tokens: int = 0
    system_tokens: int = 0
    requests: list[Call] | None = None


class Session(msgspec.Struct, gc=False):
    """One session as its line tells it."""

    id: str | int
    requests: list[Call]
    block_size: int = 64
    hash_id_scope: str = "local"
    tool_tokens: int = 0
    system_tokens: int = 0


@dataclass(slots=True)
class Step:
    """One usable call: when it was recorded to start, after whom, and its global block ids."""

    start_s: float
    call: Call
    parent: Step | None
    think_s: float
    hashes: UIntArray
    place: int = 0

    def finished_s(self, assumed_tpot_s: float) -> float:
        """When its response was complete."""
        took = self.call.api_time
        return self.start_s + (self.call.output_tokens * assumed_tpot_s if took is None else took)


@dataclass(slots=True)
class SessionRows:
    """The usable calls of one session in order of their recorded starts."""

    session_id: str
    block_tokens: int
    steps: list[Step]
    digest: int
    options: TraceOptions

    def __len__(self) -> int:
        return len(self.steps)

    def batch(self, start_s: float, first_id: int) -> TraceBatch:
        """The calls as columns; the session starts at ``start_s`` and its ids count from ``first_id``."""
        steps = self.steps
        for place, step in enumerate(steps):
            step.place = place
        output = np.array([max(1, step.call.output_tokens) for step in steps], dtype=np.int64)
        parents = [first_id + step.parent.place if step.parent else NO_PARENT for step in steps]
        offsets = np.cumsum([0, *(len(step.hashes) for step in steps)], dtype=np.int64)
        return TraceBatch(
            request_id=np.arange(first_id, first_id + len(steps), dtype=np.int64),
            arrival_s=start_s + np.array([step.start_s for step in steps]),
            input_tokens=np.array([step.call.input_tokens for step in steps], dtype=np.int64),
            output_tokens=output,
            output_budget=budgets(output, self.options.output_budget_tokens),
            hash_offsets=offsets,
            hashes=np.concatenate([step.hashes for step in steps]),
            block_tokens=self.block_tokens,
            parent_id=np.array(parents, dtype=np.int64),
            think_time_s=np.array([step.think_s for step in steps]),
            model=[step.call.model for step in steps],
            session_id=[self.session_id] * len(steps),
        )


def flatten(session: Session, number: int, options: TraceOptions, report: ReadReport) -> SessionRows | None:
    """The usable calls of a session, counting every call; ``None`` if there is none."""
    walk = _Walk(session, number, options, report)
    walk.thread(session.requests, 0.0, None, _Prefix(session.tool_tokens, session.system_tokens), 0)
    if not walk.steps:
        return None
    walk.steps.sort(key=lambda step: step.start_s)
    _one_root(walk.steps, options)
    return SessionRows(str(session.id), walk.block_tokens, walk.steps, walk.digest(), options)


def _one_root(steps: list[Step], options: TraceOptions) -> None:
    """Make the session's first call its only root, at its start.

    A recording may begin late, and an agent may have begun before any call that its caller recorded.
    """
    first = steps[0]
    begun_s = first.start_s
    for step in steps:
        step.start_s -= begun_s
    for step in steps[1:]:
        if step.parent is None:
            step.parent = first
            step.think_s = max(0.0, step.start_s - first.finished_s(options.assumed_tpot_s))


@dataclass(slots=True)
class _Prefix:
    """Tool and system prompt of one agent; ``ids`` are the local ids that stand for it, once seen."""

    tool_tokens: int
    system_tokens: int
    ids: UIntArray | None = None


@dataclass(slots=True)
class _Walk:
    session: Session
    number: int
    options: TraceOptions
    report: ReadReport
    steps: list[Step] = field(default_factory=list)
    block_tokens: int = 0
    _salt: int = 0

    def __post_init__(self) -> None:
        self.block_tokens = self.options.block_tokens or self.session.block_size
        self._salt = text_hash(str(self.session.id))
        if not self.report.block_tokens:
            self.report.block_tokens = self.block_tokens
            self.report.block_reason = "declared" if self.options.block_tokens else "stands in the file"

    def thread(self, calls: list[Call], offset_s: float, parent: Step | None, prefix: _Prefix, depth: int) -> None:
        """Walk the calls of one agent, which follow each other."""
        before, intact = parent, False
        mine: list[Step] = []
        for call in calls:
            if call.requests is not None:
                self._subagent(call, offset_s, mine, parent, depth)
                continue
            self.report.rows += 1
            hashes = self._checked(call, prefix)
            if hashes is None:
                intact = False
                continue
            step = self._step(call, offset_s, before, intact, hashes)
            mine.append(step)
            self.steps.append(step)
            before, intact = step, True

    def _subagent(self, call: Call, offset_s: float, mine: list[Step], parent: Step | None, depth: int) -> None:
        if depth >= MAX_DEPTH:
            self.report.rows += 1
            self.report.reject(Reject.BAD_FIELD, self.number, f"subagents nested deeper than {MAX_DEPTH}")
            return
        took = call.duration_ms / 1e3 if call.duration_ms is not None else 0.0
        begun_s = max(0.0, offset_s + min(max(call.t - took, 0.0), MAX_TIME_S))
        caller = next((step for step in reversed(mine) if step.start_s <= begun_s), parent)
        prefix = _Prefix(call.tool_tokens, call.system_tokens)
        self.thread(call.requests or [], begun_s, caller, prefix, depth + 1)

    def _step(self, call: Call, offset_s: float, before: Step | None, intact: bool, hashes: UIntArray) -> Step:
        start_s = offset_s + call.t
        if before is None:
            return Step(start_s, call, None, 0.0, hashes)
        if start_s < before.start_s:
            self.report.repair(Repair.TURN_BEFORE_PARENT, [self.number])
            start_s = before.start_s
        think_s = call.think_time
        if think_s is None or not intact:
            self.report.repair(Repair.THINK_TIME_DERIVED, [self.number])
            think_s = start_s - before.finished_s(self.options.assumed_tpot_s)
        return Step(start_s, call, before, min(max(think_s, 0.0), MAX_TIME_S), hashes)

    def _checked(self, call: Call, prefix: _Prefix) -> UIntArray | None:
        """Global block ids of a usable call; an unusable one is counted."""
        ids, hashed = _local_ids(call.hash_ids or ())
        reason, detail = self._fault(call, len(ids))
        if reason is not None:
            self.report.reject(reason, self.number, detail)
            return None
        if hashed:
            self.report.repair(Repair.BLOCK_IDS_HASHED, [self.number])
        if call.output_tokens == 0:
            self.report.repair(Repair.ZERO_OUTPUT_AS_ONE, [self.number])
        if call.hash_ids is None:
            self.report.repair(Repair.NO_BLOCK_IDS, [self.number])
        return self._global_ids(ids, prefix)

    def _fault(self, call: Call, blocks: int) -> tuple[Reject | None, str]:
        size = self.block_tokens
        if self.report.block_tokens != size or size < 1:
            return Reject.BLOCK_SIZE_DIFFERS, f"{size} tokens, {self.report.block_tokens} before"
        if not 0 <= call.t <= MAX_TIME_S:
            return Reject.BAD_STAMP, f"t must be 0 to {MAX_TIME_S:g} s"
        if call.input_tokens == -1 or call.output_tokens == -1:
            return Reject.FAILED, "−1 tokens mark a failure"
        if call.input_tokens < 0 or call.output_tokens < 0:
            return Reject.NEGATIVE_TOKENS, ""
        if call.input_tokens == 0:
            return Reject.NO_INPUT, "no prompt token"
        if max(call.input_tokens, call.output_tokens) > MAX_TOKENS:
            return Reject.TOKENS_OUT_OF_RANGE, f"more than {MAX_TOKENS} tokens"
        if call.output_tokens == 0 and self.options.zero_output == "reject":
            return Reject.ZERO_OUTPUT, "no output token"
        if call.hash_ids is not None and blocks not in (call.input_tokens // size, -(-call.input_tokens // size)):
            return Reject.BLOCK_COUNT, f"{blocks} block ids, {call.input_tokens // size} complete blocks"
        return None, ""

    def _global_ids(self, ids: UIntArray, prefix: _Prefix) -> UIntArray:
        if self.session.hash_id_scope == "global":
            return ids
        found = salted(ids, self._salt)
        shared = shared_ids(prefix.tool_tokens, prefix.system_tokens, self.block_tokens)
        if prefix.ids is None and len(ids):
            prefix.ids = ids[: len(shared)]
        if prefix.ids is not None:
            both = min(len(ids), len(prefix.ids))
            differs = np.flatnonzero(ids[:both] != prefix.ids[:both])
            common = int(differs[0]) if len(differs) else both
            found[:common] = shared[:common]
        return found

    def digest(self) -> int:
        """64 bits of what the session did, its id left out. Sessions equal but for ids and salts agree in it."""
        found = hashlib.blake2b(digest_size=8)
        for step in self.steps:
            call = step.call
            found.update(repr((step.start_s, call.input_tokens, call.output_tokens, call.model)).encode())
            found.update(array("q", [hash_id & (MASK >> 1) for hash_id in (call.hash_ids or ())[-4:]]).tobytes())
        return int.from_bytes(found.digest(), "little")


def _local_ids(ids: list[int] | tuple[int, ...]) -> tuple[UIntArray, bool]:
    try:
        found, hashed = array("Q", ids), False
    except OverflowError:
        opaque, hashed = opaque_ids(ids)
        found = array("Q", opaque)
    return np.array(found, dtype=np.uint64), hashed


@lru_cache(maxsize=1024)
def shared_ids(tool_tokens: int, system_tokens: int, block_tokens: int) -> UIntArray:
    """Ids of the complete blocks of a tool and system prompt: equal tools, then equal tools and system."""
    if tool_tokens < 0 or system_tokens < 0 or tool_tokens + system_tokens > MAX_TOKENS:
        return np.zeros(0, dtype=np.uint64)
    whole = (tool_tokens + system_tokens) // block_tokens
    tools = tool_tokens // block_tokens
    place = np.arange(whole, dtype=np.uint64)
    salt = mix_one(mix_one(text_hash("tools")) ^ tool_tokens)
    ids = mix(place ^ np.uint64(salt))
    ids[tools:] = mix(ids[tools:] ^ np.uint64(mix_one(system_tokens + 1)))
    return ids
