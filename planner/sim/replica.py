"""One inference engine in simulated time: it runs segments of steps and tells what came of them.

A *segment* is either one step with prompt chunks, or a run of pure decode steps that nothing can change: no
sequence ends inside it, no waiting one could be admitted, and the memory suffices. Such a run is one jump in
closed form (docs/simulator.md, section "Skipping ahead"); an arrival or a cancel cuts it at the end of the step
that is in progress.
"""

from __future__ import annotations

import math

from data.errors import SettingError
from planner.sim.kv_cache import KvCache, Notices
from planner.sim.noise import NoiseStream
from planner.sim.scheduler import Scheduler
from planner.sim.sequence import DECODE, DONE, WAITING, Sequence
from planner.sim.step_times import StepTimes, run_s, steps_until

EVICTING_STEPS = 16
"""A jump that evicts cached segments is at most this long, so that their notices are at most this late."""
IDLE = math.inf


class Replica:
    """One engine instance.

    Args:
        cache: Its KV memory.
        times: Its step times.
        noise: Its stream of noise factors.
        token_budget: ``max_num_batched_tokens``; at least ``max_seqs``, as the engine itself demands.
        max_seqs: ``max_num_seqs`` (at least 1).

    Raises:
        SettingError: If the limits do not fit together or a decode step takes no time.
    """

    __slots__ = ("_cancelled", "_factor", "_first_s", "_growth_s", "_noise", "_steps", "_times", "cache",
                 "ends_s", "hung", "notices", "queue", "slowdown", "starts_s")  # fmt: skip

    def __init__(
        self, cache: KvCache, times: StepTimes, noise: NoiseStream, token_budget: int, max_seqs: int
    ) -> None:
        if not 1 <= max_seqs <= token_budget:
            raise SettingError(
                "setting out of range", field="max_seqs", value=max_seqs, expected=f"1 to {token_budget}"
            )
        if not times.first_step_s(1, 1) > 0:
            raise SettingError(
                "a decode step takes no time", field="times", value=times.first_step_s(1, 1), expected="above 0"
            )
        self.cache = cache
        self.queue = Scheduler(cache, token_budget, max_seqs)
        self.ends_s = IDLE
        """End of the segment in progress; infinite when none is."""
        self.hung = False
        self.slowdown = 1.0
        """Steps take this many times as long; read when a segment starts."""
        self._times = times
        self._noise = noise
        self.starts_s = 0.0
        """Start of the segment in progress, or of the last one."""
        self.notices: Notices | None = None
        """What the steps that ended last stored and evicted; for the caller to publish."""
        self._cancelled: list[Sequence] = []
        self._steps = 0
        self._factor = 1.0
        self._first_s = 0.0
        self._growth_s = 0.0

    def fits(self, input_tokens: int, output_tokens: int) -> bool:
        """Whether a sequence of that size fits into the empty memory."""
        cache = self.cache
        tokens = input_tokens + output_tokens
        segments = input_tokens // cache.segment_tokens if cache.segment_tokens else 0
        worst = cache.blocks_for(tokens - segments * cache.segment_tokens) + segments * cache.segment_blocks
        return max(worst, cache.blocks_for(tokens)) <= cache.capacity

    def submit(self, sequence: Sequence, now_s: float) -> None:
        """Queue a sequence; ``ends_s`` may change."""
        queue = self.queue
        blocked = bool(queue.waiting) or len(queue.running) >= queue.max_seqs
        queue.waiting.append(sequence)
        if self.ends_s == IDLE:
            self.start(now_s)
        elif not blocked:
            self.cut(now_s)

    def cancel(self, sequence: Sequence, now_s: float) -> None:
        """Drop a sequence: at once if it waits or the engine stands still, else when the step in progress ends."""
        if sequence.state == DONE:
            return
        if sequence.state == WAITING or self.ends_s == IDLE:
            self.queue.remove(sequence)
        else:
            sequence.cancelled = True
            self._cancelled.append(sequence)
        self.cut(now_s)

    def start(self, now_s: float) -> None:
        """Begin the next segment if there is anything to do."""
        self.ends_s = IDLE
        if self.hung:
            return
        queue = self.queue
        queue.compose()
        group = queue.group
        self.starts_s = now_s
        if queue.chunks:
            chunks = [(tokens, sequence.computed) for sequence, tokens in queue.chunks]
            duration = self._times.mixed_step_s(chunks, group.count, group.kv_tokens)
            self._steps = 1
            self.cache.take(group.next_blocks())
            self.ends_s = now_s + duration * self._noise.factor(1) * self.slowdown
        elif group.count:
            steps = self._jump_steps()
            self._steps = steps
            self._first_s = self._times.first_step_s(group.count, group.kv_tokens)
            self._growth_s = self._times.growth_s(group.count)
            self._factor = self._noise.factor(steps) * self.slowdown
            self.ends_s = now_s + run_s(self._first_s, self._growth_s, self._factor, steps)

    def finish(self, now_s: float) -> tuple[list[Sequence], list[Sequence]]:
        """The segment has ended: sequences that got their first token, and those that ended (or were cancelled).

        The next segment has begun when this returns. A cancelled sequence is in neither list.
        """
        queue = self.queue
        if queue.chunks:
            ended = queue.finish_decodes(1)
            firsts, at_once = queue.finish_chunks()
            ended += at_once
        else:
            firsts = []
            self.cache.take(queue.group.blocks_over(self._steps))
            ended = queue.finish_decodes(self._steps)
        if self._cancelled:
            firsts = [sequence for sequence in firsts if not sequence.cancelled]
            ended = [sequence for sequence in ended if not sequence.cancelled]
            self._drop_cancelled()
        self.notices = self.cache.collect()
        self.start(now_s)
        return firsts, ended

    def cut(self, now_s: float) -> None:
        """End a run of decode steps with the step that is in progress; nothing else is shortened."""
        if self._steps <= 1 or self.ends_s == IDLE or self.queue.chunks:
            return
        steps = steps_until(self._first_s, self._growth_s, self._factor, now_s - self.starts_s)
        if steps < self._steps:
            self._steps = steps
            self.ends_s = self.starts_s + run_s(self._first_s, self._growth_s, self._factor, steps)

    def progress(self, sequence: Sequence) -> tuple[int, int]:
        """Tokens computed and generated when the step in progress ends (after ``cut``), or by now if none is."""
        if sequence.state != DECODE:
            return sequence.computed, sequence.generated
        made = self.queue.group.steps - sequence.joined
        if self.ends_s != IDLE:
            made += self._steps
        return sequence.computed + made, sequence.generated + made

    def crash(self, now_s: float) -> list[Sequence]:
        """Lose all work and memory; gives the sequences that were here, their counts up to the last whole step."""
        if self.ends_s != IDLE and not self.queue.chunks:
            whole = steps_until(self._first_s, self._growth_s, self._factor, now_s - self.starts_s) - 1
            self.queue.group.advance(min(whole, self._steps))
        self.ends_s = IDLE
        self.hung = False
        self.slowdown = 1.0
        self._cancelled.clear()
        return self.queue.clear()

    def blocks_per_s(self) -> float:
        """How fast the blocks in use grow in the segment in progress, on average."""
        group = self.queue.group
        if self.ends_s == IDLE or self.queue.chunks or not group.count:
            return 0.0
        return group.count / self.cache.block_tokens * self._steps / (self.ends_s - self.starts_s)

    def _jump_steps(self) -> int:
        """Steps until something about the batch can change; at least 1."""
        queue, cache, group = self.queue, self.cache, self.queue.group
        steps = group.steps_to_end()
        if queue.preempted:
            # The next step may admit what this one, having preempted, must not.
            return 1
        if group.count * (steps // cache.block_tokens + 1) <= cache.free:
            return steps
        without_eviction = group.steps_within(cache.free)
        if queue.waiting:
            # Evictions change the hits of the waiting: try to admit again after each.
            return max(1, min(steps, without_eviction))
        most = max(without_eviction, EVICTING_STEPS)
        return max(1, min(steps, most, group.steps_within(cache.room)))

    def _drop_cancelled(self) -> None:
        for sequence in self._cancelled:
            self.queue.remove(sequence)
        self._cancelled.clear()
