"""Skip-ahead against a plain step-by-step implementation of the same scheduler: same times to 1e-9."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.catalog.types import ServiceTimes
from planner.sim.kv_cache import KvCache
from planner.sim.noise import NoiseStream
from planner.sim.replica import IDLE, Replica
from planner.sim.sequence import Sequence
from planner.sim.step_times import StepTimes

TIMES = ServiceTimes(0.0031, 0.000217, 1.3e-8, 0.00713, 0.000119, 2.17e-7, 0.00057, d_sat=0.0021, sat_batch=5.0)
BLOCK = 4


@dataclass
class Job:
    at_s: float
    prompt: int
    output: int
    hashes: tuple[int, ...]
    number: int
    segments: int = 0
    held: int = 0
    private: int = 0
    computed: int = 0
    generated: int = 0
    target: int = 0
    preemptions: int = 0
    cached: int = -1
    first_s: float = -1.0
    end_s: float = -1.0


@dataclass
class Reference:
    """vLLM V1's rules, one step at a time, every sequence looked at in every step."""

    capacity: int
    segment: int
    budget: int
    max_seqs: int
    waiting: list[Job] = field(default_factory=list)
    running: list[Job] = field(default_factory=list)
    lru: list[int] = field(default_factory=list)

    def ceil(self, tokens: int) -> int:
        return max(0, -(-tokens // BLOCK))

    def held_ids(self) -> set[int]:
        return {block for job in self.running for block in job.hashes[: job.held]}

    def free(self) -> int:
        used = len(self.held_ids()) * self.ceil(self.segment) + sum(job.private for job in self.running)
        return self.capacity - used - len(self.lru) * self.ceil(self.segment)

    def room(self) -> int:
        return self.free() + len(self.lru) * self.ceil(self.segment)

    def need(self, job: Job, tokens: int) -> int:
        end = job.computed + tokens
        held = max(job.held, min(job.segments, end // self.segment))
        return (held - job.held) * self.ceil(self.segment) + self.ceil(end - held * self.segment) - job.private

    def allocate(self, job: Job, tokens: int) -> None:
        blocks = self.need(job, tokens)
        while self.free() < blocks:
            self.lru.pop(0)
        job.private += blocks
        while job.held < job.segments and (job.held + 1) * self.segment <= job.computed + tokens:
            block = job.hashes[job.held]
            job.private -= self.ceil(self.segment)
            if block in self.lru:
                self.lru.remove(block)
            job.held += 1

    def leave(self, job: Job) -> None:
        self.running.remove(job)
        still = self.held_ids()
        self.lru += [block for block in reversed(job.hashes[: job.held]) if block not in still]
        job.held = job.private = 0

    def preempt(self) -> Job:
        victim = self.running[-1]
        self.leave(victim)
        victim.target = victim.prompt + victim.generated
        victim.computed = 0
        victim.preemptions += 1
        self.waiting.insert(0, victim)
        return victim

    def step(self) -> tuple[float, list[Job], list[tuple[Job, int]]]:
        preempted = False

        def decodes() -> list[Job]:
            return [job for job in self.running if job.computed >= job.target]

        def growth() -> int:
            return sum(self.need(job, 1) for job in decodes())

        while growth() > self.room():
            self.preempt()
            preempted = True
        chunks: list[tuple[Job, int]] = []
        for job in list(self.running):
            left = self.budget - len(decodes()) - sum(n for _, n in chunks)
            if job not in self.running or job.computed >= job.target:
                continue
            if left <= 0:
                break
            tokens = min(job.target - job.computed, left)
            alive = True
            while self.need(job, tokens) + growth() > self.room():
                preempted = True
                if self.preempt() is job:
                    alive = False
                    break
            if alive:
                self.allocate(job, tokens)
                chunks.append((job, tokens))
        while self.waiting and not preempted and len(self.running) < self.max_seqs:
            left = self.budget - len(decodes()) - sum(n for _, n in chunks)
            if left <= 0:
                break
            job = self.waiting[0]
            resident = self.held_ids() | set(self.lru)
            hits = 0
            while hits < job.segments and job.hashes[hits] in resident:
                hits += 1
            job.held, job.computed = hits, min(hits * self.segment, job.target - 1)
            tokens = min(job.target - job.computed, left)
            idle = sum(block in self.lru for block in job.hashes[:hits])
            if self.need(job, tokens) + idle * self.ceil(self.segment) + growth() > self.room():
                job.held = job.computed = 0
                break
            self.waiting.pop(0)
            self.lru = [block for block in self.lru if block not in job.hashes[:hits]]
            self.running.append(job)
            if job.cached < 0:
                job.cached = job.computed
            self.allocate(job, tokens)
            chunks.append((job, tokens))
        batch = decodes()
        kv = sum(job.computed for job in batch)
        chunk_jobs = [job for job, _ in chunks]
        batch = [job for job in batch if job not in chunk_jobs]
        variable = sum(TIMES.prefill_s(tokens, job.computed) - TIMES.p0 for job, tokens in chunks)
        if not batch:
            duration = TIMES.p0 + variable + TIMES.host_overhead
        elif not chunks:
            duration = TIMES.decode_s(len(batch), kv) + TIMES.host_overhead
        else:
            decode = TIMES.decode_s(len(batch), kv) - TIMES.d0
            duration = max(TIMES.p0, TIMES.d0) + variable + decode + TIMES.host_overhead
        for job in batch:
            self.allocate(job, 1)
        return duration, batch, chunks

    def run(self, jobs: list[Job]) -> None:
        for job in jobs:
            job.target = job.prompt
        left = sorted(jobs, key=lambda job: (job.at_s, job.number))
        now = 0.0
        while left or self.waiting or self.running:
            if not self.waiting and not self.running:
                # The engine is idle: it starts with the first arrival alone.
                now = left[0].at_s
                self.waiting.append(left.pop(0))
            duration, batch, chunks = self.step()
            now += duration
            for job in batch:
                job.computed += 1
                job.generated += 1
                job.target = job.computed
            done = [job for job in batch if job.generated == job.output]
            for job, tokens in chunks:
                job.computed += tokens
                if job.computed == job.target:
                    job.generated += 1
                    if job.generated == 1:
                        job.first_s = now
                    if job.generated == job.output:
                        done.append(job)
            for job in done:
                job.end_s = now
                self.leave(job)
            while left and left[0].at_s <= now:
                self.waiting.append(left.pop(0))


def skip_ahead(jobs: list[Job], capacity: int, segment: int, budget: int, max_seqs: int) -> dict[int, tuple]:
    cache = KvCache(capacity, BLOCK)
    cache.use_segments(segment)
    replica = Replica(cache, StepTimes(TIMES), NoiseStream(0.0, 1, 0), budget, max_seqs)
    times: dict[int, list[float]] = {job.number: [-1.0, -1.0] for job in jobs}
    sequences = {}
    left = sorted(jobs, key=lambda job: (job.at_s, job.number))
    while left or replica.ends_s < IDLE:
        if left and left[0].at_s <= replica.ends_s:
            job = left.pop(0)
            sequences[job.number] = Sequence(job.prompt, job.output, job.hashes, job.segments, job.number)
            replica.submit(sequences[job.number], job.at_s)
        else:
            now = replica.ends_s
            firsts, ended = replica.finish(now)
            for sequence in firsts:
                times[sequence.owner][0] = now
            for sequence in ended:
                times[sequence.owner][1] = now
        assert cache.used + cache.cached_free + cache.free == cache.capacity
        assert cache.free >= 0
    assert cache.used == 0
    assert replica.queue.group.count == 0
    assert replica.queue.group.kv_tokens == 0
    return {
        number: (times[number], sequences[number].cached_tokens, sequences[number].preemptions) for number in times
    }


@st.composite
def workloads(draw: st.DrawFn) -> tuple[list[Job], int, int, int, int]:
    segment = draw(st.sampled_from([4, 12, 10, 40]))
    rows = draw(
        st.lists(
            st.tuples(
                st.floats(0, 3, allow_nan=False),
                st.integers(1, 150),
                st.integers(1, 90),
                st.integers(0, 2),
                st.integers(0, 4),
            ),
            min_size=1,
            max_size=14,
        )
    )
    jobs = []
    for number, (at, prompt, output, root, shared) in enumerate(rows):
        blocks = -(-prompt // segment)
        own = [10_000 + number * 1000 + i for i in range(blocks)]
        hashes = tuple(([root * 100 + i for i in range(min(shared, blocks))] + own)[:blocks])
        # Odd moments keep arrivals off the exact ends of steps, where rounding decides.
        jobs.append(Job(at + 1e-4 * 2**0.5 * number, prompt, output, hashes, number, prompt // segment))
    budget = draw(st.integers(8, 200))
    seats = draw(st.integers(1, 8))
    extra = draw(st.integers(0, 60))
    worst = max((job.segments * -(-segment // BLOCK)) + -(-(job.prompt + job.output) // BLOCK) + 1 for job in jobs)
    return jobs, worst + extra, segment, budget, seats


@given(workloads())
@settings(max_examples=300, deadline=None)
def test_skip_ahead_equals_step_by_step(load: tuple[list[Job], int, int, int, int]) -> None:
    jobs, capacity, segment, budget, seats = load
    fast = skip_ahead(jobs, capacity, segment, budget, seats)
    Reference(capacity, segment, budget, seats).run(jobs)
    for job in jobs:
        (first, end), cached, preemptions = fast[job.number]
        assert first == pytest.approx(job.first_s, rel=1e-9, abs=1e-9)
        assert end == pytest.approx(job.end_s, rel=1e-9, abs=1e-9)
        assert cached == job.cached
        assert preemptions == job.preemptions


def test_the_workloads_reach_preemption_and_hits() -> None:
    """The comparison above would say little if memory never ran out and nothing was ever shared."""
    jobs = [Job(0.01 * i, 60, 80, tuple([1, 2] + [100 * i + j for j in range(13)]), i, 15) for i in range(1, 8)]
    fast = skip_ahead(jobs, 60, 4, 64, 8)
    Reference(60, 4, 64, 8).run(jobs)
    assert sum(preemptions for _, _, preemptions in fast.values()) > 3
    assert sum(cached for _, cached, _ in fast.values()) >= 8
    for job in jobs:
        assert fast[job.number][0] == pytest.approx([job.first_s, job.end_s], rel=1e-9)
