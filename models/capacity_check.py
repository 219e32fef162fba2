"""A capacity that was measured stands in for the closed form: what a check is, and how its answer is carried over.

A check measures, at a *grid point* near the shape that is asked for, the largest rate of one replica and of a
group of ``CHECKED_GROUP``. The closed form then only carries that rate from the grid point to the shape itself, a
step of a few per cent, and from these two sizes of a group to the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from data.catalog.types import ServiceTimes
from data.types import Slo
from models.capacity import CapacitySettings, ClassShape, GroupRate, ReplicaLimits, group_rate

CHECKED_GROUP = 4
"""Size of the group that is checked besides a single replica."""
STEPS_PER_OCTAVE = 8
"""Grid of lengths: neighbours are 9 % apart."""
VARIATION_STEP = 0.25
"""Grid of the variation of lengths."""
MOST_CARRIED = 1.25
"""The closed form moves a measured rate by at most this factor from the grid point, unless prefix hits do."""


@dataclass(frozen=True, slots=True)
class CapacityCase:
    """All that a capacity depends on.

    Attributes:
        times: Step times.
        limits: Of one replica.
        shape: Of the requests.
        slo: Targets.
        percentile: Share of the requests that must meet them.
        context_tokens: Longest prompt and output together.
        block_tokens: Tokens of a KV block.
    """

    times: ServiceTimes
    limits: ReplicaLimits
    shape: ClassShape
    slo: Slo
    percentile: float
    context_tokens: int
    block_tokens: int = 16


@dataclass(frozen=True, slots=True)
class CheckedRate:
    """Largest request rates (per second) that were measured, each with its relative standard error.

    Attributes:
        one, group: Of one replica and of ``CHECKED_GROUP``; 0 = even idle replicas miss too often.
        one_error, group_error: Standard errors over their rates (>= 0).
        met_alone: Share of the requests that meet the targets on an idle replica (0 to 1).
    """

    one: float
    group: float
    one_error: float
    group_error: float
    met_alone: float


class CapacityCheck(Protocol):
    """Measures capacities, or remembers those that were measured."""

    def __call__(self, case: CapacityCase, closed: GroupRate) -> CheckedRate | None:
        """The rates of a case on the grid, or ``None`` if they are not known and cannot be measured now.

        ``closed`` is the closed form's answer in output tokens/s, to start from.
        """
        ...


def grid_shape(shape: ClassShape) -> ClassShape:
    """The grid point next to a shape, without prefix hits: capacity is checked there."""
    return ClassShape(
        _next_length(shape.input_tokens),
        _next_length(shape.output_tokens),
        0.0,
        round(shape.length_variation / VARIATION_STEP) * VARIATION_STEP,
    )


def _next_length(tokens: float) -> float:
    return float(max(round(2.0 ** (round(math.log2(max(tokens, 1.0)) * STEPS_PER_OCTAVE) / STEPS_PER_OCTAVE)), 1))


def checked_group_rate(case: CapacityCase, settings: CapacitySettings, check: CapacityCheck) -> GroupRate | None:
    """The pooling law of a case through its two measured sizes; ``None`` if the check does not know."""
    point = grid_shape(case.shape)
    there = CapacityCase(
        case.times, case.limits, point, case.slo, case.percentile, case.context_tokens, case.block_tokens
    )
    closed_there = group_rate(case.times, case.limits, point, case.slo, settings)
    found = check(there, closed_there)
    if found is None:
        return None
    closed_here = group_rate(case.times, case.limits, case.shape, case.slo, settings)
    carried = point.output_tokens * _carried(closed_here.rate, closed_there.rate, case.shape.hit_share > 0)
    return pooling_law(found.one * carried, found.group * carried)


def _carried(here: float, there: float, with_hits: bool) -> float:
    """Factor on output tokens/s from the grid point to the shape; 1 where the closed form sees no capacity at all.

    It is that of the rates without fluctuations: with them the closed form falls too steeply near its end.
    """
    if here <= 0.0 or there <= 0.0:
        return 1.0
    factor = here / there
    return factor if with_hits else min(max(factor, 1.0 / MOST_CARRIED), MOST_CARRIED)


def pooling_law(one: float, group: float) -> GroupRate:
    """``F[n] = rate·(n − loss·sqrt(n))`` through ``F[1]`` and ``F[CHECKED_GROUP]``.

    A group that gained nothing by pooling, or lost within the error of a check, is that many single replicas.
    """
    if one <= 0.0:
        return GroupRate(0.0, 0.0)
    root = math.sqrt(CHECKED_GROUP)
    gain = max(group / one, CHECKED_GROUP)
    loss = (gain - CHECKED_GROUP) / (gain - root)
    return GroupRate(one / (1.0 - loss), loss)
