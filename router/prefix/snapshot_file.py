"""The prefix index on disk: what each endpoint held, under which incarnation and up to which event.

Layout: 8 bytes of magic with the version, the length of the header (uint32, little-endian), the header (JSON), the
hashes of all endpoints one after the other (uint64, little-endian), and a BLAKE2b-256 digest of all before it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from router.kv_events.apply import HashSource
from router.prefix.slots import UInt64Array

MAGIC = b"TFPREFX1"
HASHING = "xxh64-chain-1"
"""Name of the way own hashes are made; another way gets another name."""
DIGEST_BYTES = 32
Refusal = Literal["missing", "unreadable", "foreign", "cut_short", "checksum", "header", "scheme"]
NOTHING: UInt64Array = np.zeros(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class RowSnapshot:
    """What one endpoint held.

    Attributes:
        endpoint_id: Its name.
        incarnation: Which life of it; any text that differs after a restart.
        model, block_tokens, hash_source: How its events were read.
        next_sequence: Number of the event message that comes next.
        last_made_at_s: When the last one applied was made (Unix seconds).
        gaps: Whether blocks may be held without the ones before.
        own: Keys in the index.
        engine: The engine's hashes of the same blocks; empty if these are the keys.
    """

    endpoint_id: str
    incarnation: str
    model: str
    block_tokens: int
    hash_source: HashSource
    next_sequence: int
    last_made_at_s: float
    gaps: bool
    own: UInt64Array = field(repr=False)
    engine: UInt64Array = field(default_factory=lambda: NOTHING, repr=False)


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    endpoint_id: str
    incarnation: str
    model: str
    block_tokens: int
    hash_source: HashSource
    next_sequence: int
    last_made_at_s: float
    gaps: bool
    own: int
    engine: int


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    hashing: str
    scheme: str
    rows: list[_Row]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A snapshot that was read, or why it was not: then there are no rows."""

    rows: tuple[RowSnapshot, ...] = ()
    refused: Refusal | None = None


def write_snapshot(path: Path, rows: Sequence[RowSnapshot], scheme: str) -> int:
    """Write all rows in place of the file; its size in bytes.

    Args:
        path: The file; it is written aside and put in place when complete.
        rows: What to keep.
        scheme: Fingerprint of everything else that keys depend on, such as the scope secret.
    """
    header = msgspec.json.encode(
        _Header(
            HASHING,
            scheme,
            [
                _Row(
                    row.endpoint_id,
                    row.incarnation,
                    row.model,
                    row.block_tokens,
                    row.hash_source,
                    row.next_sequence,
                    row.last_made_at_s,
                    row.gaps,
                    len(row.own),
                    len(row.engine),
                )
                for row in rows
            ],
        )
    )
    digest, aside, size = hashlib.blake2b(digest_size=DIGEST_BYTES), path.with_name(path.name + ".tmp"), 0
    with aside.open("wb") as file:
        # Hashes of an engine are not keyed: whoever holds a prompt could find it here.
        os.fchmod(file.fileno(), 0o600)
        for part in _parts(header, rows):
            digest.update(part)
            size += file.write(part)
        size += file.write(digest.digest())
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    return size


def read_snapshot(path: Path, scheme: str) -> Loaded:
    """Read a snapshot; a file that is missing, damaged or of another kind gives the reason, not an error."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return Loaded(refused="missing")
    except OSError:
        return Loaded(refused="unreadable")
    return parse_snapshot(raw, scheme)


def parse_snapshot(raw: bytes, scheme: str) -> Loaded:
    """The same from the bytes of the file."""
    start = len(MAGIC) + 4
    if raw[: len(MAGIC)] != MAGIC:
        return Loaded(refused="foreign")
    if len(raw) < start + DIGEST_BYTES:
        return Loaded(refused="cut_short")
    body = memoryview(raw)[:-DIGEST_BYTES]
    if hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest() != raw[-DIGEST_BYTES:]:
        return Loaded(refused="checksum")
    length = int.from_bytes(raw[len(MAGIC) : start], "little")
    try:
        header = msgspec.json.decode(body[start : start + length], type=_Header)
        hashes = np.frombuffer(body[start + length :], dtype="<u8").astype(np.uint64)
    except (msgspec.MsgspecError, ValueError):
        return Loaded(refused="header")
    if any(row.own < 0 or row.engine not in (0, row.own) or row.block_tokens < 1 for row in header.rows):
        return Loaded(refused="header")
    if sum(row.own + row.engine for row in header.rows) != len(hashes):
        return Loaded(refused="header")
    if (header.hashing, header.scheme) != (HASHING, scheme):
        return Loaded(refused="scheme")
    return Loaded(_rows(header, hashes))


def _parts(header: bytes, rows: Sequence[RowSnapshot]) -> list[bytes]:
    hashes = [array.astype("<u8").tobytes() for row in rows for array in (row.own, row.engine)]
    return [MAGIC, len(header).to_bytes(4, "little"), header, *hashes]


def _rows(header: _Header, hashes: UInt64Array) -> tuple[RowSnapshot, ...]:
    rows, at = list[RowSnapshot](), 0
    for row in header.rows:
        own, engine = hashes[at : at + row.own], hashes[at + row.own : at + row.own + row.engine]
        at += row.own + row.engine
        rows.append(
            RowSnapshot(
                row.endpoint_id,
                row.incarnation,
                row.model,
                row.block_tokens,
                row.hash_source,
                row.next_sequence,
                row.last_made_at_s,
                row.gaps,
                own,
                engine,
            )
        )
    return tuple(rows)
