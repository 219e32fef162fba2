"""What the simulator and the child process tell each other: tagged records, framed by their length.

Both interpreters import this file, so it needs nothing but ``msgspec``. A frame is a length of four bytes, big
end first, and that many bytes of MessagePack.
"""

from __future__ import annotations

from typing import BinaryIO

import msgspec

LENGTH_BYTES = 4


class Worker(msgspec.Struct, frozen=True):
    """One engine: its number, the model it serves, its KV tokens and its batch token budget."""

    worker: int
    model: str
    kv_tokens: int
    batch_tokens: int


class Opening(msgspec.Struct, frozen=True, tag=True):
    """The first message: the fleet.

    Attributes:
        workers: The engines.
        block_tokens: Tokens of a block as the service counts.
        parts: Such blocks in one block of the trace.
    """

    workers: list[Worker]
    block_tokens: int
    parts: int


class Stored(msgspec.Struct, frozen=True, tag=True):
    """A worker now holds a run of trace blocks, each after the one before; ``parent`` is before the first."""

    worker: int
    blocks: list[int]
    parent: int | None


class Removed(msgspec.Struct, frozen=True, tag=True):
    """A worker has evicted these trace blocks."""

    worker: int
    blocks: list[int]


class Cleared(msgspec.Struct, frozen=True, tag=True):
    """A worker has lost its whole cache."""

    worker: int


class Prefilled(msgspec.Struct, frozen=True, tag=True):
    """The first token of a booked request has come."""

    request: str


class Ended(msgspec.Struct, frozen=True, tag=True):
    """A booked request has ended."""

    request: str


Notice = Stored | Removed | Cleared | Prefilled | Ended


class Asked(msgspec.Struct, frozen=True):
    """A request to place.

    Attributes:
        request: Its name, unique among those that are booked.
        model: Model it wants.
        blocks: Its trace blocks, a partial last one included; empty = it shares nothing.
        input_tokens: Tokens of the prompt.
        allowed: Workers that passed the hard filters.
    """

    request: str
    model: str
    blocks: list[int]
    input_tokens: int
    allowed: list[int]


class Turn(msgspec.Struct, frozen=True, tag=True):
    """All that happened since the last question, in order, and the next question."""

    notices: list[Notice]
    asked: Asked


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The fleet stands."""


class Chosen(msgspec.Struct, frozen=True, tag=True):
    """Where the request is booked; how long it took to see all events, and to choose and book."""

    worker: int
    seen_s: float
    chosen_s: float


class Fault(msgspec.Struct, frozen=True, tag=True):
    """The child gives up."""

    text: str


ToChild = Opening | Turn
FromChild = Ready | Chosen | Fault
Message = ToChild | FromChild

_encode = msgspec.msgpack.Encoder().encode
_of_parent = msgspec.msgpack.Decoder(ToChild)
_of_child = msgspec.msgpack.Decoder(FromChild)


def send(stream: BinaryIO, message: Message) -> None:
    """Write one frame and flush it."""
    body = _encode(message)
    stream.write(len(body).to_bytes(LENGTH_BYTES, "big") + body)
    stream.flush()


def from_parent(stream: BinaryIO) -> ToChild | None:
    """The next message to the child; ``None`` = the other end is closed.

    Raises:
        EOFError: The stream ends within a frame.
        msgspec.ValidationError: It is no message of ours.
    """
    body = _body(stream)
    return None if body is None else _of_parent.decode(body)


def from_child(stream: BinaryIO) -> FromChild | None:
    """The next message of the child; errors as in :func:`from_parent`."""
    body = _body(stream)
    return None if body is None else _of_child.decode(body)


def _body(stream: BinaryIO) -> bytes | None:
    head = stream.read(LENGTH_BYTES)
    if not head:
        return None
    length = int.from_bytes(head, "big")
    body = stream.read(length)
    if len(head) < LENGTH_BYTES or len(body) < length:
        raise EOFError("the stream ended within a frame")
    return body
