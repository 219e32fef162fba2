"""A load test of one pool: requests of one class at a steady rate on equal, idle replicas.

It is what an engineer does with a new engine before trusting it: offer a rate, look at who keeps the targets. The
engines are the simulator's own; router, network, clients and failures are left out, so that the answer is about
the replicas alone. Each request goes to the replica with the fewest requests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data.catalog.types import ServiceTimes
from data.types import FloatArray, IntArray, Slo
from planner.sim.kv_cache import KvCache
from planner.sim.noise import NoiseStream
from planner.sim.replica import Replica
from planner.sim.sequence import Sequence as EngineSequence
from planner.sim.step_times import StepTimes

BoolArray = NDArray[np.bool_]
ALONE_S = 1e6
"""Gap between requests that never meet."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One replica as a load test needs it.

    Attributes:
        times: Step times.
        kv_blocks: KV blocks that fit (1 or more).
        block_tokens: Tokens of a block (1 or more).
        token_budget: Tokens of one step, at most.
        max_seqs: Sequences in one batch, at most.
    """

    times: ServiceTimes
    kv_blocks: int
    block_tokens: int
    token_budget: int
    max_seqs: int

    def replica(self) -> Replica:
        """A new, idle one, without step noise."""
        cache = KvCache(self.kv_blocks, self.block_tokens, caching=False)
        return Replica(cache, StepTimes(self.times), NoiseStream(0.0, 0, 0), self.token_budget, self.max_seqs)


@dataclass(frozen=True, slots=True)
class Sample:
    """Requests in the order of their arrival; each array has one entry a request.

    Attributes:
        gaps: Time before each request in units of the mean gap.
        prompts, outputs: Tokens (1 or more).
    """

    gaps: FloatArray
    prompts: IntArray
    outputs: IntArray


@dataclass(frozen=True, slots=True)
class Served:
    """How each request of a sample fared; infinite where the engine can never hold it.

    Attributes:
        ttft_s, e2e_s: From its arrival, seconds.
        finished_s: On the clock of the test.
    """

    ttft_s: FloatArray
    e2e_s: FloatArray
    finished_s: FloatArray

    def met(self, slo: Slo, outputs: IntArray) -> BoolArray:
        """Which requests kept every target, by the rule of ``Slo.met``."""
        found = np.isfinite(self.e2e_s)
        if slo.ttft_s is not None:
            found &= self.ttft_s <= slo.ttft_s
        if slo.deadline_s is not None:
            found &= self.e2e_s <= slo.deadline_s
        if slo.tpot_s is not None:
            with np.errstate(invalid="ignore"):
                tpot_s = (self.e2e_s - self.ttft_s) / np.maximum(outputs - 1, 1)
            found &= (outputs < 2) | (tpot_s <= slo.tpot_s)
        return found


def draw_sample(
    prompt: float, output: float, variation: float, count: int, context_tokens: int, rng: np.random.Generator
) -> Sample:
    """Poisson arrivals of lognormal lengths that fit into the context.

    Args:
        prompt, output: Mean tokens (1 or more).
        variation: Standard deviation of both over their mean (0 or more).
        count: Requests (1 or more).
        context_tokens: Prompt and output together, at most (2 or more).
        rng: Of all draws.
    """
    sigma = math.sqrt(math.log1p(variation**2))
    factors = rng.lognormal(-(sigma**2) / 2, sigma, (2, count))
    outputs = np.clip((output * factors[1]).astype(np.int64), 1, context_tokens // 2)
    prompts = np.clip((prompt * factors[0]).astype(np.int64), 1, context_tokens - outputs)
    return Sample(rng.exponential(1.0, count), prompts, outputs)


def serve_alone(engine: Engine, sample: Sample) -> Served:
    """Every request on an idle replica."""
    return serve([engine.replica()], sample, np.arange(len(sample.gaps), dtype=np.float64) * ALONE_S)


def serve(replicas: Sequence[Replica], sample: Sample, arrivals_s: FloatArray) -> Served:
    """Serve all requests to their end.

    Args:
        replicas: New ones; they are used up.
        sample: Lengths.
        arrivals_s: Shape (requests,), never falling.
    """
    first = np.full(len(arrivals_s), math.inf)
    finished = np.full(len(arrivals_s), math.inf)
    prompts, outputs, times = sample.prompts.tolist(), sample.outputs.tolist(), arrivals_s.tolist()
    load = [0] * len(replicas)
    place, count = 0, len(times)
    while True:
        ends = [replica.ends_s for replica in replicas]
        end_s = min(ends)
        if place < count and times[place] <= end_s:
            if replicas[0].fits(prompts[place], outputs[place]):
                least = load.index(min(load))
                load[least] += 1
                sequence = EngineSequence(prompts[place], outputs[place], (), 0, place)
                replicas[least].submit(sequence, times[place])
            place += 1
            continue
        if end_s == math.inf:
            break
        at = ends.index(end_s)
        firsts, ended = replicas[at].finish(end_s)
        for sequence in firsts:
            first[sequence.owner] = end_s
        for sequence in ended:
            finished[sequence.owner] = end_s
        load[at] -= len(ended)
    return Served(first - arrivals_s, finished - arrivals_s, finished)
