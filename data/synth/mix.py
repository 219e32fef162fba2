"""Synthetic traces: one stream, or many tenants' streams merged in arrival order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from data.errors import SettingError
from data.synth.assign import UNLABELLED, Assignment, zipf_shares
from data.synth.blocks import block_ids, concat
from data.synth.profile import TraceProfile
from data.synth.sessions import Turns
from data.synth.stream import OriginStream, StreamPart
from data.types import NO_PARENT, IntArray, TraceBatch, UIntArray

BATCH_REQUESTS = 4096
"""A batch holds the requests of a slice of time in which about this many are expected."""


@dataclass(frozen=True, slots=True)
class Stream:
    """One tenant's use of one profile.

    Attributes:
        profile: What its requests look like.
        rate_per_s: Mean requests/s over all its origins (above 0).
        assign: Labels, origins and course of demand.
        label: Names the stream's draws; streams of one mix have different labels. "" = made of its other names.
    """

    profile: TraceProfile
    rate_per_s: float
    assign: Assignment = UNLABELLED
    label: str = ""

    def __post_init__(self) -> None:
        if not (self.rate_per_s > 0 and math.isfinite(self.rate_per_s)):
            raise SettingError(
                "setting out of range", field="rate_per_s", value=self.rate_per_s, expected="above 0"
            )

    @property
    def key(self) -> str:
        """The label, or ``tenant/class/model/profile``."""
        a = self.assign
        return self.label or "/".join((a.tenant, a.workload_class, a.model, self.profile.name))


def synthesise(
    profile: TraceProfile, *, rate_per_s: float, duration_s: float, seed: int, assign: Assignment = UNLABELLED
) -> Iterator[TraceBatch]:
    """A trace of one stream, in arrival order, in bounded memory.

    The same arguments give the same bytes, and a longer trace begins with the shorter one.

    Args:
        profile: What its requests look like; see ``data.synth.profiles``.
        rate_per_s: Mean requests/s (above 0).
        duration_s: Requests arrive in [0, duration) (above 0).
        seed: 0 or more.
        assign: Labels, origins and course of demand.

    Raises:
        SettingError: An argument is out of its range.
    """
    return mix([Stream(profile, rate_per_s, assign)], duration_s=duration_s, seed=seed)


def mix(streams: Sequence[Stream], *, duration_s: float, seed: int) -> Iterator[TraceBatch]:
    """Streams merged in arrival order; ids count from 0. A stream's draws do not depend on the other ones.

    Raises:
        SettingError: No stream, two with one label, different block sizes, or an argument out of its range.
    """
    if not (duration_s > 0 and math.isfinite(duration_s)):
        raise SettingError("setting out of range", field="duration_s", value=duration_s, expected="above 0")
    if seed < 0:
        raise SettingError("setting out of range", field="seed", value=seed, expected="0 or more")
    keys = [stream.key for stream in streams]
    if not keys or len(set(keys)) < len(keys):
        raise SettingError("bad mix", field="streams", value=keys, expected="streams with different labels")
    if len({stream.profile.block_tokens for stream in streams}) > 1:
        raise SettingError("bad mix", field="block_tokens", expected="the same in every profile")
    return _merge(streams, duration_s, seed)


def tenant_streams(
    profile: TraceProfile, rate_per_s: float, assigns: Sequence[Assignment], *, exponent: float = 1.0
) -> list[Stream]:
    """One stream for each assignment, the rate shared out by Zipf weights in their order."""
    shares = zipf_shares(len(assigns), exponent)
    return [Stream(profile, rate_per_s * share, one) for one, share in zip(assigns, shares, strict=True)]


def _merge(streams: Sequence[Stream], duration_s: float, seed: int) -> Iterator[TraceBatch]:
    sources = [OriginStream(part, duration_s, seed) for stream in streams for part in _parts(stream)]
    slice_s = BATCH_REQUESTS / sum(stream.rate_per_s for stream in streams)
    numbering = _Numbering()
    for k in range(math.ceil(duration_s / slice_s)):
        taken = [source.take_until((k + 1) * slice_s) for source in sources]
        if any(len(turns.at_s) for turns in taken):
            yield _batch(sources, taken, numbering)


def _parts(stream: Stream) -> Iterator[StreamPart]:
    total = sum(share for _, share in stream.assign.origins)
    for origin, share in stream.assign.origins:
        rate = stream.rate_per_s * share / total
        yield StreamPart(stream.profile, stream.assign, stream.key, origin, rate)


class _Numbering:
    """Counts ids and remembers the last request of every session under way."""

    def __init__(self) -> None:
        self.next_id = 0
        self._last: dict[tuple[int, int], int] = {}

    def parents(
        self, closed: Sequence[bool], source: IntArray, session: IntArray, last: Sequence[bool]
    ) -> IntArray:
        """Parent ids of the next requests; only closed loops have any."""
        parents = np.full(len(source), NO_PARENT, dtype=np.int64)
        for i, (at, number, ends) in enumerate(zip(source.tolist(), session.tolist(), last, strict=True)):
            if closed[at]:
                parents[i] = self._last.pop((at, number), NO_PARENT)
                if not ends:
                    self._last[at, number] = self.next_id + i
        self.next_id += len(source)
        return parents


def _batch(sources: Sequence[OriginStream], taken: Sequence[Turns], numbering: _Numbering) -> TraceBatch:
    counts = [len(turns.at_s) for turns in taken]
    source = np.repeat(np.arange(len(sources)), counts)
    at_s = np.concatenate([turns.at_s for turns in taken])
    order = np.argsort(at_s, kind="stable")
    source = source[order]
    session = np.concatenate([turns.session for turns in taken])[order]
    last = np.concatenate([turns.last for turns in taken])[order]
    inputs = np.concatenate([turns.input_tokens for turns in taken])[order]
    outputs = np.concatenate([turns.output_tokens for turns in taken])[order]
    parts = [stream.part for stream in sources]
    closed = [part.profile.closed_loop for part in parts]
    first_id = numbering.next_id
    parents = numbering.parents(closed, source, session, last.tolist()) if any(closed) else None
    numbering.next_id = first_id + len(source)
    thinks = np.concatenate([turns.think_s for turns in taken])[order]
    offsets, hashes = _hashes(parts, taken, source, order, inputs)
    budgets = np.array([part.profile.output_budget for part in parts], dtype=np.int64)[source]
    names = source.tolist()
    return TraceBatch(
        request_id=np.arange(first_id, first_id + len(source), dtype=np.int64),
        arrival_s=at_s[order],
        input_tokens=inputs,
        output_tokens=outputs,
        output_budget=np.maximum(budgets, outputs),
        hash_offsets=offsets,
        hashes=hashes,
        block_tokens=parts[0].profile.block_tokens,
        parent_id=parents,
        think_time_s=np.where(parents != NO_PARENT, thinks, 0.0) if parents is not None else None,
        model=[parts[i].assign.model for i in names],
        tenant=[parts[i].assign.tenant for i in names],
        workload_class=[parts[i].assign.workload_class for i in names],
        origin=[parts[i].origin for i in names],
        session_id=[
            f"{parts[i].label}/{parts[i].origin}/{k}" for i, k in zip(names, session.tolist(), strict=True)
        ],
    )


def _hashes(
    parts: Sequence[StreamPart], taken: Sequence[Turns], source: IntArray, order: IntArray, inputs: IntArray
) -> tuple[IntArray, UIntArray]:
    """Block ids of a batch; requests of profiles without prefix ids have none."""
    segments = concat([turns.segments for turns in taken]).take(order)
    told = np.array([part.profile.prefix_ids for part in parts])[source]
    rows = np.flatnonzero(told)
    some, hashes = block_ids(segments.take(rows), inputs[rows], parts[0].profile.block_tokens)
    counts = np.zeros(len(source), dtype=np.int64)
    counts[rows] = np.diff(some)
    return np.concatenate([[0], np.cumsum(counts)]), hashes
