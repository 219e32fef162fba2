"""Replicas that are alike, counted: what the bound knows of a placement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from data.catalog.types import ServiceTimes
from data.fleet.types import EngineSettings, Fleet
from router.endpoints import EndpointSpec


@dataclass(frozen=True, slots=True)
class ReplicaKind:
    """Replicas of one model with equal step times, memory and limits.

    Attributes:
        model: Key of the model.
        label: Configuration that the first of them has, for people.
        times: Coefficients of the step times, seconds.
        kv_tokens: KV memory of one replica.
        token_budget: Tokens of one step, at most.
        max_seqs: Sequences of one step, at most.
        context_tokens: Prompt and output of one request, at most.
        caching: Whether prefixes are reused.
        replicas: How many there are.
    """

    model: str
    label: str
    times: ServiceTimes
    kv_tokens: int
    token_budget: int
    max_seqs: int
    context_tokens: int
    caching: bool
    replicas: int = 1

    @property
    def prefill_fixed_s(self) -> float:
        """What a step costs whatever it does."""
        return min(self.times.p0, self.decode_fixed_s - self.times.host_overhead) + self.times.host_overhead

    @property
    def decode_fixed_s(self) -> float:
        """What a step with a decoding sequence costs, its size aside."""
        return self.times.d0 + self.times.saturating_s(1) + self.times.host_overhead


def replica_kinds(fleet: Fleet, specs: Sequence[EndpointSpec]) -> tuple[ReplicaKind, ...]:
    """The kinds among ``specs``, in order of their first replica."""
    engines = {model.key: model.engine for model in fleet.models}
    first: dict[ReplicaKind, ReplicaKind] = {}
    count: Counter[ReplicaKind] = Counter()
    for spec in specs:
        engine = engines.get(spec.model, EngineSettings())
        blocks = spec.kv_capacity_tokens // engine.block_tokens
        kind = ReplicaKind(
            model=spec.model,
            label="",
            times=spec.times,
            kv_tokens=blocks * engine.block_tokens,
            token_budget=spec.batch_token_budget,
            max_seqs=spec.max_seqs,
            context_tokens=spec.context_limit_tokens,
            caching=engine.prefix_caching,
        )
        first.setdefault(kind, replace(kind, label=spec.config))
        count[kind] += 1
    return tuple(replace(named, replicas=count[kind]) for kind, named in first.items())
