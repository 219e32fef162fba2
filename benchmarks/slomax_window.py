"""A scenario at a speed, cut to so many seconds of the run's own clock."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.slomax_scenario import Mix
from planner.scenario import Scenario


def in_window(base: Scenario, speed: float, seconds: float) -> Scenario:
    """``base`` at ``speed``; arrivals end after ``seconds``."""
    source = base.trace.source
    assert isinstance(source, Mix)
    return replace(
        base, trace=replace(base.trace, source=replace(source, duration_s=seconds * speed), speed=speed)
    )
