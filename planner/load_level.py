"""Finds the arrival speed at which a policy reaches a given attainment: the load level of a comparison.

Attainment falls as arrivals speed up. With the same seeds at every speed the measured curve is nearly monotone, so
the search brackets the target by doubling or halving and then bisects the logarithm of the speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from data.errors import SettingError


@dataclass(frozen=True, slots=True)
class LoadLevel:
    """Where the search ended.

    Attributes:
        speed: Factor on the trace's arrival rate (2 = twice as fast).
        attainment: What the policy reached at that speed, 0 to 1.
        trials: Every (speed, attainment) measured, in order.
        reached: Whether ``attainment`` is within the tolerance of the target.
    """

    speed: float
    attainment: float
    trials: tuple[tuple[float, float], ...]
    reached: bool


@dataclass(frozen=True, slots=True)
class LoadSearch:
    """Settings of the search.

    Attributes:
        target: Attainment to reach, above 0 and below 1.
        tolerance: Largest difference from the target that counts as reached (above 0).
        start_speed: First speed tried (above 0).
        slowest: No speed below this is tried (above 0).
        fastest: No speed above this is tried (more than ``slowest``).
        max_trials: Speeds measured at most (at least 2).
    """

    target: float
    tolerance: float = 0.01
    start_speed: float = 1.0
    slowest: float = 1.0 / 64
    fastest: float = 64.0
    max_trials: int = 16

    def __post_init__(self) -> None:
        checks = (
            ("target", 0 < self.target < 1, "above 0 and below 1"),
            ("tolerance", self.tolerance > 0, "above 0"),
            ("slowest", 0 < self.slowest < self.fastest, "above 0 and below fastest"),
            ("start_speed", self.slowest <= self.start_speed <= self.fastest, "between slowest and fastest"),
            ("max_trials", self.max_trials >= 2, "2 or more"),
        )
        for name, ok, expected in checks:
            if not ok:
                raise SettingError(
                    "setting out of range", field=name, value=getattr(self, name), expected=expected
                )


def load_level(attainment_at: Callable[[float], float], search: LoadSearch) -> LoadLevel:
    """Speed at which ``attainment_at(speed)`` meets the target; the nearest one tried if none does.

    Each speed is measured once. The answer is deterministic for a deterministic ``attainment_at``.

    Raises:
        SettingError: Attainment stays above the target at the fastest speed, or below it at the slowest.
    """
    trials: list[tuple[float, float]] = []

    def measure(speed: float) -> float:
        value = attainment_at(speed)
        trials.append((speed, value))
        return value

    bracket = _bracket(measure, search)
    while bracket is not None and len(trials) < search.max_trials and not _reached(trials, search):
        slow, fast = bracket
        middle = math.sqrt(slow * fast)
        bracket = (middle, fast) if measure(middle) >= search.target else (slow, middle)
    latest_first = reversed(trials)  # of equally near trials the last one is nearest to the crossing
    speed, attainment = min(latest_first, key=lambda trial: abs(trial[1] - search.target))
    return LoadLevel(speed, attainment, tuple(trials), _reached(trials, search))


def _reached(trials: list[tuple[float, float]], search: LoadSearch) -> bool:
    return any(abs(value - search.target) <= search.tolerance for _, value in trials)


def _bracket(measure: Callable[[float], float], search: LoadSearch) -> tuple[float, float] | None:
    """Speeds with the target between them; ``None`` when a trial already met it or the trials ran out."""
    speed, trials_left = search.start_speed, search.max_trials - 1
    value = measure(speed)
    too_easy = value > search.target
    while abs(value - search.target) > search.tolerance:
        edge = search.fastest if too_easy else search.slowest
        if speed == edge:
            raise _unreachable(search, speed, value, too_easy)
        if trials_left == 0:
            return None
        last = speed
        speed = min(speed * 2, edge) if too_easy else max(speed / 2, edge)
        value, trials_left = measure(speed), trials_left - 1
        if (value > search.target) != too_easy:
            return (last, speed) if too_easy else (speed, last)
    return None


def _unreachable(search: LoadSearch, speed: float, value: float, too_easy: bool) -> SettingError:
    side = "stays above" if too_easy else "stays below"
    advice = "a longer or denser trace, or a higher target" if too_easy else "a lower target"
    return SettingError(
        f"attainment {side} the target even at speed {speed:g} (it is {value:.1%} there)",
        field="attainment",
        value=search.target,
        expected=advice,
    )
