"""How much memory the prefix index can need, told before it is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from data.errors import SettingError
from router.prefix.slots import slots_for
from router.prefix.table import SLOT_BYTES

Mode = Literal["tokens", "engine", "approximate"]
SANE_BLOCK_TOKENS = 16
"""Smaller blocks cost more entries than the few tokens gained are worth."""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Upper bound of the index: every endpoint full, and no block held by two of them.

    Attributes:
        entries: Endpoints × capacity / block.
        table_bytes: The table that lookups read.
        endpoint_bytes: What is kept for each endpoint beside it: engine hashes, or the recency of blocks.
    """

    entries: int
    table_bytes: int
    endpoint_bytes: int

    @property
    def total_bytes(self) -> int:
        """Both together."""
        return self.table_bytes + self.endpoint_bytes


def estimate_memory(
    endpoints: int, capacity_tokens: int, block_tokens: int, mode: Mode = "tokens"
) -> MemoryEstimate:
    """Bound for equal endpoints.

    Args:
        endpoints: Number of endpoints, at least 1.
        capacity_tokens: KV capacity of each, at least 1.
        block_tokens: Tokens of a block, at least 1.
        mode: ``tokens`` = events with own hashes, ``engine`` = events with the engine's hashes, ``approximate`` =
            no events.
    """
    blocks = -(-capacity_tokens // block_tokens)
    each = {
        "tokens": SLOT_BYTES * slots_for(blocks),
        "engine": 0,
        "approximate": 24 * blocks + 4 * (1 << int(blocks * 1.25).bit_length()),
    }[mode]
    return MemoryEstimate(endpoints * blocks, SLOT_BYTES * slots_for(endpoints * blocks), endpoints * each)


def check_memory(
    endpoints: int, capacity_tokens: int, block_tokens: int, max_bytes: int, mode: Mode = "tokens"
) -> tuple[MemoryEstimate, tuple[str, ...]]:
    """The bound and warnings about it.

    Raises:
        SettingError: If a number is below 1, or if the bound is above ``max_bytes``; the message holds the
        estimate
            and the least block size that fits.
    """
    for name, value in (
        ("endpoints", endpoints),
        ("capacity_tokens", capacity_tokens),
        ("block_tokens", block_tokens),
    ):
        if value < 1:
            raise SettingError("out of range", field=name, value=value, expected=">= 1")
    found = estimate_memory(endpoints, capacity_tokens, block_tokens, mode)
    if found.total_bytes > max_bytes:
        problem = (
            f"the prefix index could need {found.total_bytes / 2**20:,.0f} MiB for {found.entries:,} entries of "
            f"{block_tokens} tokens, more than the limit of {max_bytes / 2**20:,.0f} MiB"
        )
        fitting = _fitting(endpoints, capacity_tokens, block_tokens, max_bytes, mode)
        advice = f"block_tokens {fitting} or more" if fitting else "a larger limit"
        raise SettingError(problem, field="prefix_index", expected=advice)
    if block_tokens >= SANE_BLOCK_TOKENS:
        return found, ()
    warning = f"blocks of {block_tokens} tokens: {found.entries:,} entries; {SANE_BLOCK_TOKENS} or more are usual"
    return found, (warning,)


def _fitting(endpoints: int, capacity_tokens: int, block_tokens: int, max_bytes: int, mode: Mode) -> int:
    """Least doubling of the block size that fits; 0 if none does."""
    while block_tokens < capacity_tokens:
        block_tokens *= 2
        if estimate_memory(endpoints, capacity_tokens, block_tokens, mode).total_bytes <= max_bytes:
            return block_tokens
    return 0
