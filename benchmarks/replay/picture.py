"""Draw the sizes that scalers want against the load: ``docs/images/replay-planner.svg``.

python -m benchmarks.replay.picture docs/images/replay-planner.svg
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.bench_replay_planner import SEEDS, START_WORKERS, Contest, peer_trials
from benchmarks.replay.run import PROGRAM, interpreter
from benchmarks.replay.scaler import ScalerSettings
from benchmarks.replay.workload import MOST_WORKERS, REPORTED, Workload
from data.atomic_file import write_text_atomic
from planner.capacity_cache import CapacityCache
from solver.child import ChildSolver

WIDTH, PANEL, LEFT, RIGHT, TOP, GAP = 960, 170, 60, 20, 46, 44
COLOURS = {"load": "#8792a2", "fixed": "#6b4fa0", "dynamo": "#c27a1d", "ours": "#3f9676"}
LABELS = {
    "load": "load, in replicas (4.4/s each)",
    "fixed": "best fixed size",
    "dynamo": "Dynamo's planner",
    "ours": "our planner",
}
REPLICA_PER_S = 4.4
"""Requests/s of 1,700 tokens that one of a few replicas carries with 95 to 97 % within the targets."""
MEAN_PROMPT = 1700.0
PICTURED_PEER = 6
"""The trial of Dynamo's planner that did best on the training traces."""
FIXED = {"sinusoid": 5, "burst": 5, "drift": 5}

Steps = Sequence[tuple[float, float]]


def drawing(panels: Mapping[str, Mapping[str, Steps]], duration_s: float) -> str:
    """One panel a trace, one stepped line an arm: pairs of time and replicas."""
    height = TOP + len(panels) * (PANEL + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-size="13"',
        ' font-family="system-ui, sans-serif" role="img" aria-labelledby="t">',
        '<title id="t">Replicas wanted by each scaler against the load</title>',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
    ]
    for place, (name, label) in enumerate(LABELS.items()):
        x = LEFT + 225 * place
        parts.append(f'<path d="M{x} 20 h24" stroke="{COLOURS[name]}" stroke-width="3"/>')
        parts.append(f'<text x="{x + 30}" y="24" fill="#1c2430">{label}</text>')
    for number, (name, lines) in enumerate(panels.items()):
        parts += _panel(name, lines, TOP + number * (PANEL + GAP), duration_s)
    return "\n".join([*parts, "</svg>", ""])


def _panel(name: str, lines: Mapping[str, Steps], top: int, duration_s: float) -> list[str]:
    def x(at_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(at_s, duration_s) / duration_s

    def y(replicas: float) -> float:
        return top + PANEL * (1 - replicas / MOST_WORKERS)

    parts = [
        f'<text x="{LEFT}" y="{top - 6}" fill="#1c2430" font-weight="600">{name}</text>',
        f'<path d="M{LEFT} {top} V{top + PANEL} H{WIDTH - RIGHT}" fill="none" stroke="#c9d1db"/>',
    ]
    parts += [
        f'<text x="{LEFT - 6}" y="{y(replicas) + 4:.0f}" fill="#566173" text-anchor="end">{replicas}</text>'
        for replicas in range(0, MOST_WORKERS + 1, 4)
    ]
    parts += [
        f'<text x="{x(at):.0f}" y="{top + PANEL + 16}" fill="#566173" text-anchor="middle">{at} s</text>'
        for at in range(0, int(duration_s) + 1, 400)
    ]
    for arm, steps in lines.items():
        path = f"M{x(steps[0][0]):.1f} {y(steps[0][1]):.1f}"
        path += (
            "".join(f" H{x(at):.1f} V{y(replicas):.1f}" for at, replicas in steps[1:]) + f" H{x(duration_s):.1f}"
        )
        parts.append(f'<path d="{path}" fill="none" stroke="{COLOURS[arm]}" stroke-width="1.7"/>')
    return parts


def load(workload: Workload) -> Steps:
    """Expected load every 5 s, in replicas."""
    times = [5.0 * k for k in range(math.ceil(workload.duration_s / 5.0))]
    return [
        (at, workload.rate_per_s(at) * workload.input_tokens(at) / MEAN_PROMPT / REPLICA_PER_S) for at in times
    ]


def main() -> None:
    """Replay the first seed of each reported trace under both planners and draw what they wanted."""
    python = interpreter()
    if python is None:
        raise SystemExit(f"{PROGRAM} names no interpreter")
    with tempfile.TemporaryDirectory() as folder, ChildSolver() as solve:
        contest = Contest(python, Path(folder), CapacityCache(Path(folder) / "capacity.json"), solve)
        panels: dict[str, dict[str, Steps]] = {}
        for workload in REPORTED:
            trace = contest.trace(workload, SEEDS[0])
            ours = contest.ours(ScalerSettings(), workload.season_s)(trace)
            peer = contest.peer(peer_trials()[PICTURED_PEER])(trace)
            start = (0.0, float(START_WORKERS))
            panels[workload.name] = {
                "load": load(workload),
                "fixed": [(0.0, float(FIXED[workload.name]))],
                "dynamo": [start, *peer.sizes],
                "ours": [start, *ours.sizes],
            }
    write_text_atomic(Path(sys.argv[1]), drawing(panels, REPORTED[0].duration_s))


if __name__ == "__main__":
    main()
