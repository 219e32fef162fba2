"""One request inside an engine: what the scheduler keeps about it."""

from __future__ import annotations

from typing import Any

WAITING = 0
PREFILL = 1
DECODE = 2
DONE = 3


class Sequence:
    """State of one attempt on one replica.

    Attributes:
        input_tokens: Prompt length.
        output_tokens: Tokens it will generate; only the engine reads this.
        hashes: Ids of the prompt blocks.
        segments: Leading prompt blocks that are complete and may be cached.
        owner: Whatever the caller wants back with its notices.
        state: ``WAITING``, ``PREFILL``, ``DECODE`` or ``DONE``.
        cancelled: Leaves the batch when the step in progress ends.
        target: Tokens whose KV must be computed before the next token comes: the prompt, and after a preemption
            the tokens generated so far as well.
        computed: Tokens with KV in memory; while decoding, at step ``joined``.
        generated: Tokens generated; while decoding, at step ``joined``.
        held: Leading segments that it holds.
        private: Private blocks that it holds; while decoding, at step ``joined``.
        joined: Replica's step count when it began (or went on) decoding.
        last_step: Replica's step count at which its last token comes.
        cached_tokens: Prefix-hit tokens found when it was first scheduled; -1 before that.
        recomputed_tokens: Tokens computed again after preemptions.
        preemptions: How often it was preempted.
    """

    __slots__ = (
        "cached_tokens",
        "cancelled",
        "computed",
        "generated",
        "hashes",
        "held",
        "input_tokens",
        "joined",
        "last_step",
        "output_tokens",
        "owner",
        "preemptions",
        "private",
        "recomputed_tokens",
        "segments",
        "state",
        "target",
    )

    def __init__(
        self, input_tokens: int, output_tokens: int, hashes: tuple[int, ...], segments: int, owner: Any
    ) -> None:
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.hashes = hashes
        self.segments = segments
        self.owner = owner
        self.state = WAITING
        self.cancelled = False
        self.target = input_tokens
        self.computed = 0
        self.generated = 0
        self.held = 0
        self.private = 0
        self.joined = 0
        self.last_step = 0
        self.cached_tokens = -1
        self.recomputed_tokens = 0
        self.preemptions = 0
