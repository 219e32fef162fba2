"""XXH64 of token ids, chained over the blocks of a prompt; bit-exact with the reference implementation.

The hash of a block is XXH64 over its token ids as little-endian uint32, seeded with the hash of the block before
it (xxHash specification 0.1.1, section "XXH64 algorithm description").
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from router.compiled import compiled
from router.prefix.slots import UInt64Array

TokenArray = npt.NDArray[np.uint32]

PRIME_1 = np.uint64(0x9E3779B185EBCA87)
PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
PRIME_3 = np.uint64(0x165667B19E3779F9)
PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
PRIME_5 = np.uint64(0x27D4EB2F165667C5)
BITS = np.uint64(64)
HALF = np.uint64(32)


@compiled
def _turn(value: np.uint64, by: int) -> np.uint64:
    left = np.uint64(by)
    return (value << left) | (value >> (BITS - left))


@compiled
def _round(lane: np.uint64, word: np.uint64) -> np.uint64:
    return _turn(lane + word * PRIME_2, 31) * PRIME_1


@compiled
def _merge(value: np.uint64, lane: np.uint64) -> np.uint64:
    return (value ^ _round(np.uint64(0), lane)) * PRIME_1 + PRIME_4


@compiled
def _word(tokens: TokenArray, at: int) -> np.uint64:
    return np.uint64(tokens[at]) | (np.uint64(tokens[at + 1]) << HALF)


@compiled
def xxh64(tokens: TokenArray, start: int, stop: int, seed: np.uint64) -> np.uint64:
    """Hash of ``tokens[start:stop]`` as little-endian uint32."""
    at = start
    if stop - start >= 8:
        a, b, c, d = seed + PRIME_1 + PRIME_2, seed + PRIME_2, seed, seed - PRIME_1
        while stop - at >= 8:
            a = _round(a, _word(tokens, at))
            b = _round(b, _word(tokens, at + 2))
            c = _round(c, _word(tokens, at + 4))
            d = _round(d, _word(tokens, at + 6))
            at += 8
        value = _turn(a, 1) + _turn(b, 7) + _turn(c, 12) + _turn(d, 18)
        value = _merge(_merge(_merge(_merge(value, a), b), c), d)
    else:
        value = seed + PRIME_5
    value += np.uint64(4 * (stop - start))
    while stop - at >= 2:
        value = _turn(value ^ _round(np.uint64(0), _word(tokens, at)), 27) * PRIME_1 + PRIME_4
        at += 2
    if at < stop:
        value = _turn(value ^ (np.uint64(tokens[at]) * PRIME_1), 23) * PRIME_2 + PRIME_3
    value = (value ^ (value >> np.uint64(33))) * PRIME_2
    value = (value ^ (value >> np.uint64(29))) * PRIME_3
    return value ^ (value >> HALF)


@compiled
def chain(tokens: TokenArray, block_tokens: int, root: np.uint64, media: UInt64Array) -> UInt64Array:
    """One hash a full block; a last partial block has none.

    Args:
        tokens: Token ids, shape (tokens,).
        block_tokens: Tokens of a block, at least 1.
        root: Seed of the first block: what the prompt is scoped to.
        media: Mixed into the seed of each block by xor, 0 = nothing; an empty array = no block has any.
    """
    blocks = tokens.shape[0] // block_tokens
    out = np.empty(blocks, dtype=np.uint64)
    seed = root
    for i in range(blocks):
        if media.shape[0]:
            seed ^= media[i]
        seed = xxh64(tokens, i * block_tokens, (i + 1) * block_tokens, seed)
        out[i] = seed
    return out
