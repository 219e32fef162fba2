"""Draw the adapter study over the offered rate, engine beside simulator, and print it as a table.

python -m benchmarks.fidelity.study_picture docs/images/fidelity-study.svg
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench_fidelity import shared_data
from benchmarks.fidelity.adapter_study import Simulated
from benchmarks.fidelity.study_rows import compared, markdown
from data.atomic_file import write_text_atomic

WIDTH, PANEL, LEFT, TOP, GAP = 900, 150, 70, 52, 46
ENGINE_COLOUR, OUR_COLOUR = "#c27a1d", "#3f9676"
RATES = (0.5, 1, 2, 5, 10, 20, 50, 100, 200)


@dataclass(frozen=True, slots=True)
class Point:
    """One run: offered rate, the engine's figure, ours with the lengths of either form."""

    rate: float
    seen: float
    one: float
    other: float


@dataclass(frozen=True, slots=True)
class Scale:
    """Values to heights below ``top``: logarithmic where all are above 0, else linear from 0."""

    low: float
    high: float
    top: float

    def y(self, value: float) -> float:
        """Where the value stands."""
        if self.low > 0:
            part, whole = math.log(value / self.low), math.log(self.high / self.low)
        else:
            part, whole = value, self.high
        return self.top + PANEL * (1.0 - (part / whole if whole > 0 else 0.0))


def panels(pairs: Sequence[tuple[Simulated, Simulated]]) -> dict[str, list[Point]]:
    """Points by title of the panel."""

    def points(what: str) -> list[Point]:
        return [Point(a.run.offered, getattr(a.run, what), getattr(a, what), getattr(b, what)) for a, b in pairs]

    growth = [
        Point(
            a.run.offered,
            *(0.0 if a.run.keeps_up else max(a.run.offered - x.served, 0.0) for x in (a.run, a, b)),
        )
        for a, b in pairs
    ]
    return {
        "sequences that run": points("running"),
        "share of KV memory in use": points("kv_share"),
        "growth of the queue, requests/s": growth,
    }


def drawing(found: dict[str, list[Point]]) -> str:
    """One panel each, the rate on a logarithmic axis; a bar spans ours with either form of lengths."""
    height = TOP + len(found) * (PANEL + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-size="13"',
        ' font-family="system-ui, sans-serif" role="img" aria-labelledby="t">',
        '<title id="t">Adapter study: engine and simulator over the offered rate</title>',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<circle cx="{LEFT + 5}" cy="18" r="4" fill="{ENGINE_COLOUR}"/>',
        f'<text x="{LEFT + 16}" y="22" fill="#1c2430">engine</text>',
        f'<path d="M{LEFT + 105} 10 v16" stroke="{OUR_COLOUR}" stroke-width="5"/>',
        f'<text x="{LEFT + 116}" y="22" fill="#1c2430">simulator, from narrow to wide lengths</text>',
    ]
    for number, (title, points) in enumerate(found.items()):
        parts += _panel(title, points, TOP + number * (PANEL + GAP))
    return "\n".join([*parts, "</svg>", ""])


def _panel(title: str, points: Sequence[Point], top: int) -> list[str]:
    values = [value for point in points for value in (point.seen, point.one, point.other)]
    scale = Scale(min(values), max(values), top)
    parts = [
        f'<text x="{LEFT}" y="{top - 6}" fill="#1c2430" font-weight="600">{title}</text>',
        f'<text x="{LEFT - 6}" y="{top + 10}" fill="#566173" text-anchor="end">{scale.high:.3g}</text>',
        f'<text x="{LEFT - 6}" y="{top + PANEL}" fill="#566173" text-anchor="end">{scale.low:.2g}</text>',
        f'<path d="M{LEFT} {top} V{top + PANEL} H{WIDTH - 20}" fill="none" stroke="#c9d1db"/>',
        *(
            f'<text x="{_x(rate):.0f}" y="{top + PANEL + 16}" fill="#566173" text-anchor="middle">{rate:g}</text>'
            for rate in RATES
        ),
    ]
    for point in points:
        x = _x(point.rate)
        low, high, seen = (scale.y(value) for value in (point.one, point.other, point.seen))
        parts.append(
            f'<path d="M{x:.1f} {low:.1f} V{high:.1f}" stroke="{OUR_COLOUR}" stroke-width="5" '
            'stroke-linecap="round" opacity="0.7"/>'
            f'<circle cx="{x:.1f}" cy="{seen:.1f}" r="3" fill="{ENGINE_COLOUR}"/>'
        )
    return parts


def _x(rate: float) -> float:
    low, high = math.log(0.35), math.log(230.0)
    return LEFT + (WIDTH - 20 - LEFT) * (math.log(rate) - low) / (high - low)


def main(path: str) -> None:
    """Run the study, write the picture, print the table."""
    found = compared(shared_data())
    pairs = list(zip(found["narrow"], found["wide"], strict=True))
    write_text_atomic(Path(path), drawing(panels(pairs)))
    print(markdown(pairs))


if __name__ == "__main__":
    main(sys.argv[1])
