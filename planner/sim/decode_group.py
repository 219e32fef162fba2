"""The sequences of one replica that decode together, advanced many steps at once.

Every member gets one token a step, so the group needs no loop over members: it keeps the number of members, the
sum of their KV tokens, the step at which each one ends (a heap), and how many of them need a new block at which
step modulo the block size.
"""

from __future__ import annotations

from heapq import heappop, heappush

from planner.sim.kv_cache import KvCache
from planner.sim.sequence import DECODE, Sequence


class DecodeGroup:
    """Decoding sequences of one replica.

    Args:
        cache: The replica's memory; only its block and segment sizes are read.
    """

    __slots__ = ("_cache", "_ends", "_joined", "_phase", "count", "kv_tokens", "steps")

    def __init__(self, cache: KvCache) -> None:
        self._cache = cache
        self.steps = 0
        """Steps the replica has made; the clock of the group."""
        self.count = 0
        self.kv_tokens = 0
        """KV tokens of all members."""
        self._ends: list[tuple[int, int, Sequence]] = []
        self._joined = 0
        # _phase[r] members need a new block in the step that starts when steps % block_tokens == r.
        self._phase = [0] * cache.block_tokens

    def join(self, sequence: Sequence) -> None:
        """Add a sequence whose ``computed``, ``generated``, ``held`` and ``private`` are up to date."""
        sequence.state = DECODE
        sequence.joined = self.steps
        sequence.last_step = self.steps + sequence.output_tokens - sequence.generated
        self._joined += 1
        heappush(self._ends, (sequence.last_step, self._joined, sequence))
        self._phase[self._residue(sequence)] += 1
        self.count += 1
        self.kv_tokens += sequence.computed

    def leave(self, sequence: Sequence) -> None:
        """Take a member out and bring its own counts up to the present step; its state is the caller's to set."""
        self._phase[self._residue(sequence)] -= 1
        made = self.steps - sequence.joined
        sequence.computed += made
        sequence.generated += made
        sequence.joined = self.steps
        sequence.private = self._cache.blocks_for(self._private_tokens(sequence))
        self.count -= 1
        self.kv_tokens -= sequence.computed

    def advance(self, steps: int) -> None:
        """Every member makes ``steps`` steps."""
        self.steps += steps
        self.kv_tokens += steps * self.count

    def steps_to_end(self) -> int:
        """Steps until the next member ends; the group must not be empty."""
        ends = self._ends
        while ends[0][2].state != DECODE or ends[0][2].last_step != ends[0][0]:
            heappop(ends)
        return ends[0][0] - self.steps

    def pop_ended(self) -> list[Sequence]:
        """Members that have all their tokens, in the order in which they joined; they have left."""
        ended: list[Sequence] = []
        ends = self._ends
        while ends and ends[0][0] <= self.steps:
            last_step, _, sequence = heappop(ends)
            if sequence.state == DECODE and sequence.last_step == last_step:
                self.leave(sequence)
                ended.append(sequence)
        return ended

    def next_blocks(self) -> int:
        """New blocks that the next step needs."""
        return self._phase[self.steps % len(self._phase)]

    def blocks_over(self, steps: int) -> int:
        """New blocks that the next ``steps`` steps need."""
        phase = self._phase
        cycle = len(phase)
        cycles, rest = divmod(steps, cycle)
        start = self.steps % cycle
        blocks = cycles * self.count + sum(phase[start : start + rest])
        if start + rest > cycle:
            blocks += sum(phase[: start + rest - cycle])
        return blocks

    def steps_within(self, blocks: int) -> int:
        """Most steps that need no more than ``blocks`` new blocks; the group must not be empty."""
        phase = self._phase
        cycle = len(phase)
        cycles, rest = divmod(blocks, self.count)
        steps = cycles * cycle
        position = self.steps % cycle
        while True:
            rest -= phase[position]
            if rest < 0:
                return steps
            steps += 1
            position = position + 1 if position + 1 < cycle else 0

    def clear(self) -> None:
        """Drop every member, as in a crash."""
        self.count = 0
        self.kv_tokens = 0
        self._ends.clear()
        self._phase = [0] * len(self._phase)

    def _private_tokens(self, sequence: Sequence) -> int:
        return sequence.computed - sequence.held * self._cache.segment_tokens

    def _residue(self, sequence: Sequence) -> int:
        return (sequence.joined - self._private_tokens(sequence)) % len(self._phase)
