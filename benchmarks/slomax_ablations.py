"""What each part of SLOMax brings: the reference mix with one part switched off, or one that is off switched on.

All at the speed that counts as the capacity, seed by seed against SLOMax as it is. Parts that the mix does not
call on (budgets, reservations) have their own scenario in ``benchmarks.slomax_promises``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.slomax_promises import CAPACITY_SPEED
from benchmarks.slomax_scenario import scenario
from benchmarks.slomax_window import in_window
from planner.arm import Arm, parse_arm
from planner.intervals import Estimate, estimate, paired_difference, paired_relative_difference
from planner.run_pool import RunPool
from planner.scenario import Scenario

FLOW = "tokenpilot+slomax"
OFF = {
    "pace": ":pace=false",
    "shield": ":shield=0.0",
    "late queue": ":demote=false",
    "ceilings": ":ceiling_step=1.0",
    "reserve": ":reserve=0.0",
    "one long prefill": ":long_at_once=8",
    "floors": ":floor_share=0.0:late_share=0.0",
}
"""Part to the settings that switch it off."""
LATE_SHARES = (0.06, 0.1, 0.2)
SECONDS = 150.0


def variants() -> dict[str, tuple[str, bool]]:
    """Name to the arm, and whether classes refuse the late."""
    off = {f"without {part}": (FLOW + settings, False) for part, settings in OFF.items()}
    late = {f"late_share {share:g}": (f"{FLOW}:late_share={share}", False) for share in LATE_SHARES}
    return {
        "as it is": (FLOW, False),
        **off,
        "with early refusal": (FLOW, True),
        "with feedback": (FLOW + "+feedback", False),
        "without any": ("tokenpilot", False),
        **late,
    }


def case(refuse: bool, seconds: float, load: float = 1.0) -> Scenario:
    """The reference mix at ``load`` times the capacity; ``refuse``: classes with a TTFT target refuse the late."""
    base = scenario()
    if refuse:
        classes = tuple(
            replace(kind, when_late="refuse") if kind.slo.ttft_s is not None else kind
            for kind in base.fleet.classes
        )
        base = replace(base, fleet=replace(base.fleet, classes=classes))
    return in_window(base, load * CAPACITY_SPEED, seconds)


def measure(
    pool: RunPool, seeds: Sequence[int], seconds: float = SECONDS
) -> dict[str, tuple[Estimate, Estimate, Estimate]]:
    """Relative change of good tokens, change of attainment, and TTFT P99 of long context, by variant."""
    found: dict[str, tuple[list[float], list[float], list[float]]] = {}
    for name, (text, refuse) in variants().items():
        arm: Arm = replace(parse_arm(text), name=name)
        runs = pool.run(case(refuse, seconds).run, [(arm, seed) for seed in seeds])
        found[name] = (
            [float(run.total.good_output_tokens) for run in runs],
            [run.total.attainment_offered for run in runs],
            [run.by_class["long_context"].ttft.p99 for run in runs],
        )
    goodput, attained, _ = found["as it is"]
    return {
        name: (
            paired_relative_difference(values[0], goodput),
            paired_difference(values[1], attained),
            estimate(values[2]),
        )
        for name, values in found.items()
    }
