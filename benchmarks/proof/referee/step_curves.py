"""Step times of an endpoint as the table that Dynamo's replay reads, and times that it can hold exactly.

The table knows prefill by new tokens alone, decode by KV tokens and mean context. Dynamo looks up the prefill of a
step by the sum of its new tokens and adds the decode part (seen in its replay, 1.6.1). Three things of ours can
therefore not be said: that a later chunk, or a prompt with a cached start, attends to what stands before it; that
two prompts of a step do not attend to each other; that prefill and decode of a mixed step read the weights once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from data.catalog.types import ServiceTimes
from data.types import FloatArray
from router.endpoints import EndpointSpec

KV_POINTS = 65
CONTEXTS = tuple(round(256 * 2 ** (step / 2)) for step in range(19))
"""256 to 131,072 tokens."""
LEAST_STEP_S = 0.001
"""No decode step of the replay takes less."""
Prompts = Sequence[tuple[int, int]]
"""New and cached tokens of prompts."""


def write_profile(path: Path, spec: EndpointSpec, prefill: float = 1.0, fixed: bool = True) -> None:
    """Write the table of an endpoint's step times (NPZ, milliseconds).

    Args:
        path: Where to.
        spec: The endpoint.
        prefill: Factor on the part of prefill that grows with the prompt.
        fixed: Whether prefill has its fixed part, the reading of the weights; without it a mixed step pays for
            that once and a step of prefill alone not at all.
    """
    times, budget = spec.times, spec.batch_token_budget
    prompts = np.unique([1, 64, *np.linspace(0, budget, 33)[1:].round(), 4 * budget, 16 * budget])
    contexts = np.array(CONTEXTS, dtype=np.float64)
    kv = np.linspace(0.0, float(spec.kv_capacity_tokens), KV_POINTS)[1:]
    batch = np.clip(kv[:, None] / contexts[None, :], 1.0, spec.max_seqs)
    fixed_s = times.p0 + times.host_overhead if fixed else 0.0
    np.savez(
        path,
        prefill_isl=prompts,
        prefill_ttft_ms=1e3 * (fixed_s + prefill * _growing_s(times, prompts)),
        decode_active_kv_tokens=kv,
        decode_context_length=contexts,
        decode_itl=1e3
        * (np.vectorize(times.decode_fixed_s)(batch) + times.host_overhead + times.d2 * kv[:, None]),
    )


def same_work(spec: EndpointSpec, prompts: Prompts) -> float:
    """Factor on the growing part of prefill with which all these prompts together take as long as in ours.

    Chunks are as long as the budget of a step allows, and each has a step of its own.
    """
    times, budget = spec.times, spec.batch_token_budget
    new = np.array([one for one, _ in prompts], dtype=np.float64)
    cached = np.array([held for _, held in prompts], dtype=np.float64)
    ours = float((times.p1 * new + times.p2 * new * (cached + new / 2)).sum())
    chunks, rest = np.divmod(new, budget)
    theirs = float((chunks * _growing_s(times, np.array([budget])) + _growing_s(times, rest)).sum())
    return ours / theirs if theirs > 0 else 1.0


def common(spec: EndpointSpec) -> EndpointSpec:
    """The endpoint with times that the table holds exactly: every prompt token takes the same, decode as before.

    That is what a token takes, on average, in a cold prompt as long as the budget of a step.
    """
    times, budget = spec.times, spec.batch_token_budget
    per_token_s = times.prefill_s(budget) / budget
    linear = replace(times, p0=0.0, p1=per_token_s, p2=0.0, d0=max(times.d0, LEAST_STEP_S), host_overhead=0.0)
    return replace(spec, times=linear)


def _growing_s(times: ServiceTimes, tokens: FloatArray) -> FloatArray:
    """Prefill of a cold prompt without the fixed part."""
    return np.asarray(times.p1 * tokens + times.p2 * tokens**2 / 2)
