"""Draw demand against placed capacity over the days, one panel a model: ``docs/images/fleetmind-demand.svg``.

python -m benchmarks.fleet_contest.picture docs/images/fleetmind-demand.svg
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from benchmarks.bench_fleet import LOADS, OWN, REPORTED, SEEDS, chosen_arms
from benchmarks.fleet_contest.arms import carry_out
from benchmarks.fleet_contest.demand import DAY, HOUR
from benchmarks.fleet_contest.setting import Contest, contest_fleet, make_contest, measured_table
from data.atomic_file import write_text_atomic
from data.types import FloatArray, IntArray
from solver.child import ChildSolver

WIDTH, PANEL, LEFT, TOP, GAP = 960, 130, 70, 46, 42
COLOURS = {"demand": "#8792a2", "static": "#c27a1d", OWN: "#3f9676"}


def placed_capacity(contest: Contest, replicas: IntArray, model: str) -> FloatArray:
    """Interactive tokens/s that the replicas of a model carry within the targets, by window."""
    capacities = contest.template.capacities
    rate = np.array([c.rate("interactive") if c.config.model == model else 0.0 for c in capacities])
    total: FloatArray = replicas @ rate
    return total


def drawing(panels: dict[str, dict[str, FloatArray]], days: int) -> str:
    """The picture: one panel a model, one line a series; all series have the same number of windows."""
    height = TOP + len(panels) * (PANEL + GAP) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-size="13"',
        ' font-family="system-ui, sans-serif" role="img" aria-labelledby="t">',
        '<title id="t">Demand and placed capacity by model</title>',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        *_legend(),
    ]
    for number, (model, series) in enumerate(panels.items()):
        parts += _panel(model, series, TOP + number * (PANEL + GAP), days)
    return "\n".join([*parts, "</svg>", ""])


def _legend() -> list[str]:
    names = {
        "demand": "demand",
        "static": "capacity, static placement",
        OWN: "capacity, FleetMind",
    }
    return [
        f'<path d="M{LEFT + 230 * k} 20 h28" stroke="{COLOURS[name]}" stroke-width="3"/>'
        f'<text x="{LEFT + 230 * k + 34}" y="24" fill="#1c2430">{label}</text>'
        for k, (name, label) in enumerate(names.items())
    ]


def _panel(model: str, series: dict[str, FloatArray], top: int, days: int) -> list[str]:
    most = max(float(values.max()) for values in series.values()) or 1.0
    span = WIDTH - LEFT - 20
    parts = [
        f'<text x="{LEFT}" y="{top - 6}" fill="#1c2430" font-weight="600">{model}</text>',
        f'<text x="{LEFT - 6}" y="{top + 10}" fill="#566173" text-anchor="end">{most / 1000:.0f}k</text>',
        f'<text x="{LEFT - 6}" y="{top + PANEL}" fill="#566173" text-anchor="end">0</text>',
        f'<path d="M{LEFT} {top} V{top + PANEL} H{WIDTH - 20}" fill="none" stroke="#c9d1db"/>',
    ]
    for day in range(days):
        x = LEFT + span * day / days
        parts.append(f'<text x="{x:.0f}" y="{top + PANEL + 14}" fill="#566173">day {REPORTED[0] + day}</text>')
    for name, values in series.items():
        steps = np.linspace(LEFT, LEFT + span, len(values))
        points = " ".join(
            f"{x:.1f},{top + PANEL * (1 - v / most):.1f}" for x, v in zip(steps, values.tolist(), strict=True)
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" stroke-width="1.5"/>')
    return parts


def main() -> None:
    """Carry out two arms on the first seed and draw them."""
    first, last = REPORTED[0] * DAY, (REPORTED[-1] + 1) * DAY
    contest = make_contest(contest_fleet(), measured_table(contest_fleet()), LOADS[0], SEEDS[0], REPORTED)
    arms = {arm.name: arm for arm in chosen_arms() if arm.name in COLOURS}
    with ChildSolver() as child:
        plans = {name: carry_out(contest, arm, first, last, child) for name, arm in arms.items()}
    panels = {}
    for model in contest.template.models:
        mine = np.array([key[0] == model for key in contest.demand.keys])
        lines = {"demand": contest.demand.tokens_per_s[mine, first:last].sum(axis=0)}
        lines |= {name: placed_capacity(contest, plan, model) for name, plan in plans.items()}
        panels[model] = {name: values.reshape(-1, HOUR).mean(axis=1) for name, values in lines.items()}
    write_text_atomic(Path(sys.argv[1]), drawing(panels, len(REPORTED)))


if __name__ == "__main__":
    main()
