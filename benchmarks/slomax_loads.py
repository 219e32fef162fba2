"""Goodput, attainment and output over the load: SLOMax, no flow control, and the strongest rival.

100 % is the speed that counts as the capacity in ``benchmarks.slomax_promises``. ``python -m
benchmarks.slomax_loads FILE.svg`` also draws the picture.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.kept_runs import KeptRuns, code_digest
from benchmarks.slomax_promises import CAPACITY_SPEED
from benchmarks.slomax_scenario import scenario
from benchmarks.slomax_window import in_window
from planner.arm import parse_arm
from planner.intervals import Estimate, estimate, paired_relative_difference
from planner.run_pool import RunPool
from planner.scenario import Scenario
from planner.sim.result import RunResult

LOADS = (0.8, 1.0, 1.2, 1.4, 1.6)
RIVAL = "weighted_deficit_dynamo:busy_share=0.02:tight_factor=16.0"
ARMS = {
    "SLOMax": parse_arm("tokenpilot+slomax"),
    "weighted deficit": parse_arm(f"tokenpilot+{RIVAL}"),
    "none": parse_arm("tokenpilot"),
}
SECONDS = 150.0
COLOURS = ("#0b6e4f", "#c1121f", "#6c757d")
WIDTH, HEIGHT, LEFT, TOP = 360, 250, 56, 30


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """What one arm did at one load, by seed.

    Tokens count for each second in which requests arrived: a run ends when the last late request has, and the time
    that takes is no capacity.
    """

    goodput: list[float]
    attainment: list[float]
    output: list[float]

    @classmethod
    def of(cls, runs: Sequence[RunResult], seconds: float) -> LoadPoint:
        """From the runs of all seeds, in which requests arrive for ``seconds``."""
        totals = [run.total for run in runs]
        return cls(
            [one.good_output_tokens / seconds for one in totals],
            [one.attainment_offered for one in totals],
            [one.output_tokens / seconds for one in totals],
        )


Sweep = dict[str, list[LoadPoint]]
"""Arm to its points, in the order of ``LOADS``."""


def sweep(pool: RunPool, seeds: Sequence[int], base: Scenario | None = None, seconds: float = SECONDS) -> Sweep:
    """All arms at all loads."""
    base = base or scenario()
    found: Sweep = {name: [] for name in ARMS}
    for load in LOADS:
        at_load = in_window(base, load * CAPACITY_SPEED, seconds)
        for name, arm in ARMS.items():
            runs = pool.run(at_load.run, [(replace(arm, name=name), seed) for seed in seeds])
            found[name].append(LoadPoint.of(runs, seconds))
    return found


def ahead(found: Sweep, place: int, rival: str) -> Estimate:
    """Relative lead of SLOMax in Goodput at one load, seed by seed."""
    return paired_relative_difference(found["SLOMax"][place].goodput, found[rival][place].goodput)


def picture(found: Sweep) -> str:
    """Goodput and attainment over the load as an SVG; bars are 95 % intervals."""
    panels = (("Goodput, tokens/s", "goodput"), ("attainment, offered", "attainment"))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {HEIGHT + 50}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for panel, (title, figure) in enumerate(panels):
        parts += _panel(found, panel * WIDTH, title, figure)
    for place, (name, colour) in enumerate(zip(found, COLOURS, strict=True)):
        x = LEFT + 150 * place
        parts.append(f'<rect x="{x}" y="{HEIGHT + 28}" width="14" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 20}" y="{HEIGHT + 34}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(found: Sweep, x0: int, title: str, figure: str) -> list[str]:
    estimates = {name: [estimate(getattr(point, figure)) for point in points] for name, points in found.items()}
    most = max(one.mean for points in estimates.values() for one in points)
    step = _step(most)
    top = step * float(np.ceil(most / step))

    def across(load: float) -> float:
        share = (load - LOADS[0]) / (LOADS[-1] - LOADS[0])
        return x0 + LEFT + share * (WIDTH - LEFT - 20)

    def up(value: float) -> float:
        return TOP + (1.0 - value / top) * (HEIGHT - TOP - 20)

    parts = [f'<text x="{x0 + LEFT}" y="18" font-weight="bold">{title}</text>']
    for value in np.arange(0.0, top + step / 2, step):
        y = up(float(value))
        parts.append(f'<path d="M{across(LOADS[0]):.0f} {y:.1f}H{across(LOADS[-1]):.0f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x0 + LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:,.4g}</text>')
    parts += [
        f'<text x="{across(load):.0f}" y="{HEIGHT}" text-anchor="middle">{load:.0%}</text>' for load in LOADS
    ]
    for colour, points in zip(COLOURS, estimates.values(), strict=True):
        line = " ".join(f"{across(load):.1f},{up(one.mean):.1f}" for load, one in zip(LOADS, points, strict=True))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for load, one in zip(LOADS, points, strict=True):
            if one.low is not None and one.high is not None:
                bar = f"M{across(load):.1f} {up(one.low):.1f}V{up(one.high):.1f}"
                parts.append(f'<path d="{bar}" stroke="{colour}" stroke-width="1.5"/>')
    return parts


def _step(most: float) -> float:
    """A round number that divides an axis into about five."""
    raw = most / 5
    size = 10.0 ** np.floor(np.log10(raw))
    return float(next(factor * size for factor in (1, 2, 5, 10) if factor * size >= raw))


def main() -> None:
    """Print the sweep, and draw it into the file that is named."""
    path = Path("out/bench_slomax") / f"runs-{code_digest()}.pickle"
    with KeptRuns(1, path) as pool:
        found = sweep(pool, range(1, 6))
    for place, load in enumerate(LOADS):
        for name, points in found.items():
            point = points[place]
            figures = [estimate(values) for values in (point.goodput, point.attainment, point.output)]
            print(f"{load:.0%} {name}", *(f"{one.mean:.5g} ({one.low:.5g} to {one.high:.5g})" for one in figures))
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(picture(found))


if __name__ == "__main__":
    main()
