"""What is left of a request's targets after waiting: policies count from the dispatch."""

from __future__ import annotations

from dataclasses import replace

from data.types import Slo
from router.types import RouteRequest

LEAST_LEFT_S = 1e-3
"""A target that is lost is passed on as this much time: it ranks behind every other, and stays a target."""


def with_time_left(route: RouteRequest, waited_s: float) -> RouteRequest:
    """The request with what is left of its targets after waiting."""
    slo = route.slo
    if waited_s <= 0.0 or (slo.ttft_s is None and slo.deadline_s is None):
        return route
    left = Slo(_left(slo.ttft_s, waited_s), slo.tpot_s, _left(slo.deadline_s, waited_s))
    return replace(route, slo=left)


def _left(target_s: float | None, waited_s: float) -> float | None:
    return None if target_s is None else max(target_s - waited_s, LEAST_LEFT_S)
