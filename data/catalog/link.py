"""All-reduces of a tensor-parallel step over a link: what they add to each token of the step."""

from __future__ import annotations

from dataclasses import dataclass, replace

from data.catalog.types import ServiceTimes

ALL_REDUCES = 2
"""All-reduces of one layer, each over the hidden state of every token of the step."""
VALUE_BYTES = 2


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a model's shape counts here: layers, and values of a token's hidden state."""

    layers: int
    hidden: int


def all_reduce_bytes(shape: Shape, gpus: int) -> float:
    """Bytes that one token's all-reduces send from each of so many GPUs, in a ring: 2·(gpus − 1)/gpus of the data.

    Two GPUs send the data once. Source: bandwidth bound of the ring all-reduce (Patarasuk and Yuan, 2009).
    """
    return ALL_REDUCES * shape.layers * shape.hidden * VALUE_BYTES * 2 * (gpus - 1) / gpus


def link_times(times: ServiceTimes, shape: Shape, gpus: int, bytes_per_s: float) -> ServiceTimes:
    """The same with the all-reduces of each prompt token and each sequence that decodes, at that bandwidth."""
    token_s = all_reduce_bytes(shape, gpus) / bytes_per_s
    return replace(times, p1=times.p1 + token_s, d1=times.d1 + token_s)
