"""Decode KV-event payloads; nothing that arrives can make it raise."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import numpy as np

from router.kv_events import messages as m
from router.prefix.slots import UInt64Array

WORD = (1 << 64) - 1
BAD_PAYLOAD = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError, ValueError, TypeError)

_BATCH = msgspec.msgpack.Decoder(m.RawBatch)
_ANY = msgspec.msgpack.Decoder(list[Any])
_ENCODER = msgspec.msgpack.Encoder()
_MAP: dict[bool, msgspec.msgpack.Decoder[Any]] = {
    True: msgspec.msgpack.Decoder(list[m.MapStored | m.MapRemoved | m.MapCleared]),
    False: msgspec.msgpack.Decoder(list[m.MapStoredBare | m.MapRemoved | m.MapCleared]),
}
_ARRAY: dict[bool, msgspec.msgpack.Decoder[Any]] = {
    True: msgspec.msgpack.Decoder(list[m.ArrayStored | m.ArrayRemoved | m.ArrayCleared]),
    False: msgspec.msgpack.Decoder(list[m.ArrayStoredBare | m.ArrayRemoved | m.ArrayCleared]),
}


@dataclass(slots=True)
class Batch:
    """Events of one message.

    Attributes:
        made_at_s: When the engine made it (Unix seconds); NaN if it does not say.
        rank: Data-parallel rank of the engine, 0 if it does not say.
        events: In order.
        malformed: Events that could not be read, for instance of an unknown type.
    """

    made_at_s: float
    rank: int
    events: Sequence[m.Event] = field(default_factory=list)
    malformed: int = 0


def decode_batch(payload: bytes, with_tokens: bool = True) -> Batch | None:
    """One message; ``None`` if it is no batch at all.

    Args:
        payload: Msgpack ``[time, [event, …], rank]``; the events as maps or as arrays.
        with_tokens: ``False`` leaves token ids out, which is faster.
    """
    try:
        raw = _BATCH.decode(payload)
        events = bytes(raw.events)
        made_at_s = raw.ts if math.isfinite(raw.ts) else math.nan
    except BAD_PAYLOAD:
        return None
    batch = Batch(made_at_s, raw.rank or 0)
    try:
        decoders = _MAP if _holds_maps(events) else _ARRAY
        batch.events = decoders[with_tokens].decode(events)
    except BAD_PAYLOAD:
        return _one_by_one(events, batch, with_tokens)
    return batch


def hashes_of(values: Sequence[m.Hash]) -> UInt64Array:
    """Block hashes as uint64: of digests the last 8 bytes, big-endian; of negative numbers the complement."""
    try:
        return np.frombuffer(array("Q", cast("Sequence[int]", values)), dtype=np.uint64)
    except BAD_PAYLOAD:
        return np.array([hash_of(value) for value in values], dtype=np.uint64)


def hash_of(value: m.Hash) -> int:
    """One block hash as a number in [0, 2^64)."""
    return (int.from_bytes(value[-8:], "big") if isinstance(value, bytes) else value) & WORD


def _holds_maps(events: bytes) -> bool:
    """Whether the first element of a msgpack array is a map (format bytes of the msgpack specification)."""
    head = {0xDC: 3, 0xDD: 5}.get(events[0], 1) if events else 1
    if len(events) <= head:
        return True
    first = events[head]
    return first & 0xF0 == 0x80 or first in (0xDE, 0xDF)


def _one_by_one(events: bytes, batch: Batch, with_tokens: bool) -> Batch | None:
    """The slow way: keep the events that can be read, count the others."""
    try:
        items = _ANY.decode(events)
    except BAD_PAYLOAD:
        return None
    kept: list[m.Event] = []
    for item in items:
        decoders = _MAP if isinstance(item, dict) else _ARRAY
        try:
            kept += decoders[with_tokens].decode(_ENCODER.encode([item]))
        except BAD_PAYLOAD:
            batch.malformed += 1
    batch.events = kept
    return batch
