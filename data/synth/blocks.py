"""Block ids of prompts: equal ids at equal positions mean an equal prefix up to and including that block.

A prompt is a run of *segments*, each a stretch of text with a key. Every block's id is a hash of the key that its
last token belongs to, its position and, for a partial block, its length. Two prompts that share keys up to a
block share its id; a segment that branches off has a key of its own, so all that follows differs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.types import IntArray, UIntArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MASK = (1 << 64) - 1


def mix64(values: UIntArray) -> UIntArray:
    """SplitMix64's finaliser (Steele, Lea and Flood, 2014): a bijection that scatters 64-bit integers."""
    z = values + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@dataclass(frozen=True, slots=True)
class Segments:
    """Segments of many prompts: those of prompt ``i`` are rows ``offsets[i]`` to ``offsets[i + 1]``.

    ``start`` is the segment's first block; it reaches to the next segment's or to the prompt's end.
    """

    offsets: IntArray
    start: IntArray
    key: UIntArray

    def take(self, rows: IntArray) -> Segments:
        """The segments of these prompts, in their order."""
        counts = np.diff(self.offsets)[rows]
        index = spans(self.offsets[rows], counts)
        return Segments(np.concatenate([[0], np.cumsum(counts)]), self.start[index], self.key[index])


def concat(parts: list[Segments]) -> Segments:
    """The prompts of all parts, one part after the other."""
    shifts = np.cumsum([0, *(len(part.key) for part in parts)])
    offsets = [part.offsets[1:] + shift for part, shift in zip(parts, shifts, strict=False)]
    return Segments(
        np.concatenate([np.zeros(1, dtype=np.int64), *offsets]),
        np.concatenate([part.start for part in parts]),
        np.concatenate([part.key for part in parts]),
    )


def spans(first: IntArray, counts: IntArray) -> IntArray:
    """``first[0], first[0] + 1, …`` (``counts[0]`` of them), then those of the next span, as one array."""
    before = np.cumsum(counts) - counts
    result: IntArray = np.arange(int(counts.sum())) + np.repeat(first - before, counts)
    return result


def block_ids(segments: Segments, input_tokens: IntArray, block_tokens: int) -> tuple[IntArray, UIntArray]:
    """Offsets (one more than prompts) and ids of all blocks, the partial last one included."""
    blocks = -(-input_tokens // block_tokens)
    owner = np.repeat(np.arange(len(input_tokens)), np.diff(segments.offsets))
    end = np.append(segments.start[1:], 0)
    end[segments.offsets[1:] - 1] = blocks
    end = np.minimum(end, blocks[owner])
    counts = np.maximum(end - segments.start, 0)
    position = spans(segments.start, counts)
    ids = mix64(np.repeat(segments.key, counts) ^ mix64(position.astype(np.uint64)))
    offsets = np.concatenate([[0], np.cumsum(blocks)])
    partial = input_tokens % block_tokens
    last = (offsets[1:] - 1)[partial > 0]
    ids[last] = mix64(ids[last] ^ partial[partial > 0].astype(np.uint64))
    return offsets, ids
