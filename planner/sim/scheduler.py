"""Which sequences a replica runs in its next step: vLLM V1's rules.

1. Every decoding sequence gets one token. While their new blocks do not fit, the sequence admitted last is
   preempted: it loses its blocks (cached segments stay reusable) and goes to the front of the queue.
2. Prompts begun before get their next chunk, in order of admission, under what is left of the token budget.
3. If nothing was preempted, waiting sequences are admitted first come first served, while tokens, places and
   blocks last. The prefix hit of a sequence is looked up here.
"""

from __future__ import annotations

from collections import deque

from planner.sim.decode_group import DecodeGroup
from planner.sim.kv_cache import KvCache
from planner.sim.sequence import DECODE, DONE, PREFILL, WAITING, Sequence

Chunk = tuple[Sequence, int]
"""A sequence and the prompt tokens that it computes in a step."""


class Scheduler:
    """Queue, batch and memory of one replica.

    Args:
        cache: Its KV memory.
        token_budget: Tokens of one step, at most.
        max_seqs: Sequences in the batch, at most.
    """

    __slots__ = ("cache", "chunks", "group", "max_seqs", "preempted", "preemptions", "prefills", "running",
                 "token_budget", "waiting")  # fmt: skip

    def __init__(self, cache: KvCache, token_budget: int, max_seqs: int) -> None:
        self.cache = cache
        self.token_budget = token_budget
        self.max_seqs = max_seqs
        self.group = DecodeGroup(cache)
        self.waiting: deque[Sequence] = deque()
        self.running: dict[Sequence, None] = {}
        """The batch in order of admission."""
        self.prefills: list[Sequence] = []
        """Members of the batch whose prompt is not finished, in order of admission."""
        self.chunks: list[Chunk] = []
        """Prompt chunks of the step that was composed last."""
        self.preempted = False
        """Whether composing the last step preempted a sequence."""
        self.preemptions = 0

    def compose(self) -> None:
        """Choose the next step: fills ``chunks``; takes the blocks of the chunks, not those of the decodes."""
        self.chunks = []
        self.preempted = False
        group, cache = self.group, self.cache
        if group.count:
            while group.next_blocks() > cache.room:
                self._preempt_last()
        if self.prefills:
            self._continue_prefills()
        if self.waiting and not self.preempted:
            self._admit()

    def finish_chunks(self) -> tuple[list[Sequence], list[Sequence]]:
        """The step of ``chunks`` has ended: sequences with their first token, and those that ended with it."""
        firsts: list[Sequence] = []
        ended: list[Sequence] = []
        for sequence, tokens in self.chunks:
            sequence.computed += tokens
            if sequence.computed < sequence.target:
                continue
            self.prefills.remove(sequence)
            sequence.generated += 1
            if sequence.generated == 1:
                firsts.append(sequence)
            if sequence.generated >= sequence.output_tokens:
                ended.append(sequence)
                self.free(sequence)
            else:
                self.group.join(sequence)
        self.chunks = []
        return firsts, ended

    def finish_decodes(self, steps: int) -> list[Sequence]:
        """The decoding sequences have made ``steps`` steps (their blocks are taken): those that ended."""
        self.group.advance(steps)
        ended = self.group.pop_ended()
        for sequence in ended:
            self.free(sequence)
        return ended

    def remove(self, sequence: Sequence) -> None:
        """Drop a sequence between steps, wherever it is; nothing happens if it has ended."""
        if sequence.state == WAITING:
            self.waiting.remove(sequence)
            sequence.state = DONE
            return
        if sequence.state == DONE:
            return
        if sequence.state == DECODE:
            self.group.leave(sequence)
        else:
            self.prefills.remove(sequence)
        self.free(sequence)

    def free(self, sequence: Sequence) -> None:
        """Give back all that a sequence holds; it has left its group and list already."""
        self._give_back(sequence)
        sequence.state = DONE

    def clear(self) -> list[Sequence]:
        """Lose everything, as in a crash: all sequences that were here, the batch first."""
        lost = [*self.running, *self.waiting]
        for sequence in lost:
            if sequence.state == DECODE:
                self.group.leave(sequence)
            sequence.state = DONE
        self.group.clear()
        self.cache.clear()
        self.running.clear()
        self.waiting.clear()
        self.prefills.clear()
        self.chunks = []
        return lost

    def _give_back(self, sequence: Sequence) -> None:
        del self.running[sequence]
        self.cache.give(sequence.private)
        self.cache.release(sequence.hashes, sequence.held)
        sequence.private = 0
        sequence.held = 0

    def _preempt_last(self) -> Sequence:
        victim = next(reversed(self.running))
        if victim.state == DECODE:
            self.group.leave(victim)
        else:
            self.prefills.remove(victim)
        self._give_back(victim)
        victim.state = WAITING
        victim.target = victim.input_tokens + victim.generated
        victim.preemptions += 1
        self.preemptions += 1
        self.preempted = True
        self.waiting.appendleft(victim)
        return victim

    def _continue_prefills(self) -> None:
        cache, group = self.cache, self.group
        scheduled = 0
        for sequence in tuple(self.prefills):
            left = self.token_budget - group.count - scheduled
            if sequence.state != PREFILL or left <= 0:
                break
            tokens = min(sequence.target - sequence.computed, left)
            blocks = self._chunk_blocks(sequence, tokens)
            while blocks + group.next_blocks() > cache.room:
                if self._preempt_last() is sequence:
                    return
            self._schedule(sequence, tokens, blocks)
            scheduled += tokens

    def _admit(self) -> None:
        cache, waiting, running = self.cache, self.waiting, self.running
        reserved = self.group.next_blocks()
        left = self.token_budget - self.group.count - sum(tokens for _, tokens in self.chunks)
        while waiting and left > 0 and len(running) < self.max_seqs:
            sequence = waiting[0]
            hits = cache.match(sequence.hashes, sequence.segments) if sequence.segments else 0
            computed = min(hits * cache.segment_tokens, sequence.target - 1)
            tokens = min(sequence.target - computed, left)
            sequence.held = hits
            sequence.computed = computed
            blocks = self._chunk_blocks(sequence, tokens)
            idle = cache.idle_blocks(sequence.hashes, hits) if hits else 0
            if blocks + idle + reserved > cache.room:
                sequence.held = sequence.computed = 0
                return
            waiting.popleft()
            self._start(sequence)
            self._schedule(sequence, tokens, blocks)
            left -= tokens

    def _start(self, sequence: Sequence) -> None:
        self.cache.acquire(sequence.hashes, sequence.held)
        sequence.state = PREFILL
        self.running[sequence] = None
        self.prefills.append(sequence)
        if sequence.cached_tokens < 0:
            sequence.cached_tokens = sequence.computed
        else:
            sequence.recomputed_tokens += sequence.target - sequence.computed

    def _chunk_blocks(self, sequence: Sequence, tokens: int) -> int:
        """Blocks to take so that ``tokens`` more fit; complete segments count in whole blocks of their own."""
        cache = self.cache
        end = sequence.computed + tokens
        held = self._segments_at(sequence, end)
        private = cache.blocks_for(end - held * cache.segment_tokens)
        return (held - sequence.held) * cache.segment_blocks + private - sequence.private

    def _segments_at(self, sequence: Sequence, tokens: int) -> int:
        """Segments that are complete once ``tokens`` tokens are computed; never fewer than it holds."""
        if not sequence.segments:
            return 0
        return max(sequence.held, min(sequence.segments, tokens // self.cache.segment_tokens))

    def _schedule(self, sequence: Sequence, tokens: int, blocks: int) -> None:
        cache = self.cache
        cache.take(blocks)
        sequence.private += blocks
        held = self._segments_at(sequence, sequence.computed + tokens)
        # Registered when scheduled, as vLLM does: a sequence admitted in the same step may already share them.
        if held > sequence.held:
            cache.commit(sequence.hashes, sequence.held, held)
        sequence.private -= (held - sequence.held) * cache.segment_blocks
        sequence.held = held
        self.chunks.append((sequence, tokens))
