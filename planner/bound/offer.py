"""What is offered, as arrays: the work of each request that nobody can have done before it came, and its dues."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from data.errors import TraceError
from data.fleet.types import Fleet
from data.types import NO_PARENT, FloatArray, IntArray, Request, Slo
from planner.bound.shared_blocks import BlockReader, SharedBlocks
from planner.sim.settings import SimSettings


@dataclass(frozen=True, slots=True)
class Offer:
    """The requests of a trace, in order of arrival; all arrays have shape (requests,).

    Attributes:
        models: Names that ``model`` counts.
        model: Index of each request's model.
        arrival_s: Arrival.
        input_tokens: Prompt.
        output_tokens: True output length.
        seen_tokens: Leading prompt tokens that stand in an earlier request of the same model, in complete blocks.
        ttft_s, tpot_s: Targets; infinite where there is none.
        first_due_s: The first token of a good response has come by then.
        end_due_s: A good response has ended by then.
        blocks: Who holds which prompt block.
    """

    models: tuple[str, ...]
    model: IntArray
    arrival_s: FloatArray
    input_tokens: IntArray
    output_tokens: IntArray
    seen_tokens: IntArray
    ttft_s: FloatArray
    tpot_s: FloatArray
    first_due_s: FloatArray
    end_due_s: FloatArray
    blocks: SharedBlocks

    def __len__(self) -> int:
        return len(self.arrival_s)


@dataclass(frozen=True, slots=True)
class _Targets:
    """Targets of a class; infinite where there is none. The time-out ends whatever has no first token by then."""

    first_s: float
    tpot_s: float
    whole_s: float


def offer_of(fleet: Fleet, requests: Iterable[Request], settings: SimSettings) -> Offer:
    """Read a trace once. Empty names stand for the fleet's first, as in the simulator.

    Args:
        fleet: Classes and models.
        requests: In order of arrival.
        settings: Time limit (what arrives later is not offered) and time-out.

    Raises:
        TraceError: A turn waits for its parent, so that its arrival depends on the policy.
    """
    limit_s = _or_infinite(settings.time_limit_s)
    targets = {
        kind.name: _targets(kind.slo, settings.client_timeout_s or kind.client_timeout_s) for kind in fleet.classes
    }
    default_class = next(iter(targets), "")
    models = tuple(model.key for model in fleet.models)
    place = {name: index for index, name in enumerate(models)}
    reader = BlockReader()
    rows = []
    for request in requests:
        if request.parent_id != NO_PARENT:
            raise TraceError(
                "arrivals depend on the policy", field="parent_id", value=request.parent_id,
                expected="a trace without closed-loop turns",
            )  # fmt: skip
        model = place.get(request.model or next(iter(models), ""), -1)
        target = targets.get(request.workload_class or default_class)
        if request.arrival_s > limit_s:
            break
        known = reader.read(request, model)
        if model < 0 or target is None:
            rows.append((-1, request, 0, 0.0, 0.0, -math.inf, -math.inf))
            continue
        first_s, end_s = _due(request, target)
        rows.append(
            (model, request, known, target.first_s, target.tpot_s, min(first_s, limit_s), min(end_s, limit_s))
        )
    return Offer(
        models=models,
        model=np.array([row[0] for row in rows], dtype=np.int64),
        arrival_s=np.array([row[1].arrival_s for row in rows], dtype=np.float64),
        input_tokens=np.array([row[1].input_tokens for row in rows], dtype=np.int64),
        output_tokens=np.array([row[1].output_tokens for row in rows], dtype=np.int64),
        seen_tokens=np.array([row[2] for row in rows], dtype=np.int64),
        ttft_s=np.array([row[3] for row in rows], dtype=np.float64),
        tpot_s=np.array([row[4] for row in rows], dtype=np.float64),
        first_due_s=np.array([row[5] for row in rows], dtype=np.float64),
        end_due_s=np.array([row[6] for row in rows], dtype=np.float64),
        blocks=reader.blocks(),
    )


def _or_infinite(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds


def _targets(slo: Slo, timeout_s: float | None) -> _Targets:
    whole_s = _or_infinite(slo.deadline_s)
    first_s = min(_or_infinite(slo.ttft_s), whole_s, _or_infinite(timeout_s))
    return _Targets(first_s, _or_infinite(slo.tpot_s), whole_s)


def _due(request: Request, target: _Targets) -> tuple[float, float]:
    """Latest moments of the first and of the last token of a good response."""
    more = request.output_tokens - 1
    decode_s = target.tpot_s * more if more else 0.0
    end_s = min(target.first_s + decode_s, target.whole_s)
    return request.arrival_s + min(target.first_s, end_s), request.arrival_s + end_s
