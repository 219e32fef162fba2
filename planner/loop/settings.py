"""Settings of the planner loop."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from data.errors import SettingError


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """How the loop takes its steps, and what it does with what comes out.

    Attributes:
        step_deadline_s: A step that is not done after so long is given up; the plan in force stays (1 to 86,400).
        shrink_after_steps: Steps in a row that must know a commodity before its demand may take replicas away, and
            over which the largest forecast counts (1 to 100).
        window_s: Length of the last window, in which service is measured and plans are tried (1 to 86,400).
        shadow_requests: Requests of one simulated run, at most; the window is cut to fit (10 to 1,000,000).
        shadow_seeds: Simulated runs of each plan (1 to 100).
        shadow_loss: A plan that loses more than this share of the running plan's simulated Goodput is refused
            (0 to 1).
        shadow_policy: Routing policy of the simulated runs.
        settle_s: Time that new replicas get to load before a plan is judged by its Goodput (0 to 86,400).
        watch_s: How long it is watched after that (0 to 604,800); 0 = not at all.
        look_every_s: Time between two looks at the Goodput of a plan that is watched (1 to 86,400).
        fall_limit: A plan is taken back when the share of offered tokens that is Goodput falls by more than this
            part of what it was before (0 to 1).
        falls: Looks in a row that must see it (1 to 100).
        rise_limit: A fall while demand is larger by more than this part is the demand's doing (0 to 100).
        least_requests: A look with fewer requests says nothing (1 or more).
        quarantine_s: A placement that was taken back is not published again for so long (0 to 31,536,000).
    """

    step_deadline_s: float = 300.0
    shrink_after_steps: int = 2
    window_s: float = 900.0
    shadow_requests: int = 2000
    shadow_seeds: int = 2
    shadow_loss: float = 0.02
    shadow_policy: str = "tokenpilot"
    settle_s: float = 300.0
    watch_s: float = 1800.0
    look_every_s: float = 60.0
    fall_limit: float = 0.1
    falls: int = 2
    rise_limit: float = 0.25
    least_requests: int = 100
    quarantine_s: float = 21_600.0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("step_deadline_s", 1, 86_400),
            ("shrink_after_steps", 1, 100),
            ("window_s", 1, 86_400),
            ("shadow_requests", 10, 1_000_000),
            ("shadow_seeds", 1, 100),
            ("shadow_loss", 0, 1),
            ("settle_s", 0, 86_400),
            ("watch_s", 0, 604_800),
            ("look_every_s", 1, 86_400),
            ("fall_limit", 0, 1),
            ("falls", 1, 100),
            ("rise_limit", 0, 100),
            ("least_requests", 1, math.inf),
            ("quarantine_s", 0, 31_536_000),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                expected = f"{low:g} or more" if high == math.inf else f"{low:,} to {high:,}"
                raise SettingError("out of range", field=name, value=value, expected=expected)


def effective(settings: LoopSettings, given: frozenset[str]) -> tuple[tuple[str, float | str, bool], ...]:
    """Settings as they hold: name, value, and whether it is among those that were given."""
    return tuple((one.name, getattr(settings, one.name), one.name in given) for one in fields(settings))
