"""Charts of a comparison as plain data for plotly.js; colours are names that the page resolves by its theme.

A chart never stands alone: it has a text alternative that says what it shows, and the tables of the report hold
its figures.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from data.fleet.types import Fleet
from data.types import FloatArray
from planner import measures as m
from planner.compare import ArmRuns, Comparison
from planner.report import numbers

PALETTE_SIZE = 6
DASHES = ("solid", "dash", "dot", "dashdot")
MAX_CURVE_POINTS = 160


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: plotly traces and layout, its text alternative, and its height in pixels."""

    chart_id: str
    title: str
    alternative: str
    traces: list[dict[str, Any]]
    layout: dict[str, Any]
    height: int


@dataclass(frozen=True, slots=True)
class Look:
    """How an arm is drawn, the same in every chart."""

    colour: str
    dash: str


def looks(comparison: Comparison) -> dict[str, Look]:
    """The reference is neutral and dashed, the others take the palette in order of Goodput."""
    drawn: dict[str, Look] = {}
    free = 0
    for entry in comparison.ranked():
        if entry.arm.name == comparison.reference and len(comparison.arms) > 1:
            drawn[entry.arm.name] = Look("reference", "dash")
        else:
            dash = DASHES[free // PALETTE_SIZE % len(DASHES)]
            drawn[entry.arm.name] = Look(f"series-{free % PALETTE_SIZE}", dash)
            free += 1
    return drawn


def colour(name: str) -> dict[str, str]:
    """A colour by its name in the style sheet; a wrapped value, so that no text of a user can pass for one."""
    return {"$colour": name}


def label(text: str, limit: int = 24) -> str:
    """A name for use inside a chart: escaped, as plotly reads markup in labels; a long one loses its middle."""
    short = text if len(text) <= limit else f"{text[: limit // 2]}…{text[1 + limit // 2 - limit :]}"
    return html.escape(short, quote=False)


def goodput_chart(comparison: Comparison) -> Chart:
    """Mean Goodput of each arm, best on top, with 95 % intervals."""
    entries = comparison.ranked()
    style = looks(comparison)
    figures = [entry.estimate(m.GOODPUT) for entry in entries]
    texts = [
        f"{entry.arm.name} {numbers.with_interval(figure, 'tokens/s')}"
        for entry, figure in zip(entries, figures, strict=True)
    ]
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": [_finite(figure.mean) for figure in figures],
        "y": list(range(len(entries))),
        "marker": {"color": [colour(style[entry.arm.name].colour) for entry in entries]},
        "error_x": _error_bars([figure.half_width for figure in figures]),
        "hovertemplate": "%{x:,.0f} tokens/s<extra></extra>",
    }
    layout = {
        "xaxis": {"title": {"text": "Goodput, output tokens/s"}, "rangemode": "tozero"},
        "yaxis": _names(entries),
        "showlegend": False,
    }
    return Chart(
        "goodput", "Goodput by policy", f"Goodput in tokens/s, best first: {'; '.join(texts)}.", [bars], layout,
        _bar_height(len(entries)),
    )  # fmt: skip


def difference_chart(comparison: Comparison) -> Chart:
    """Relative paired difference in Goodput to the reference, with 95 % intervals and a line at zero."""
    entries = [entry for entry in comparison.ranked() if entry.arm.name != comparison.reference]
    style = looks(comparison)
    figures = [comparison.relative_difference(entry.arm.name) for entry in entries]
    texts = [
        f"{entry.arm.name} {numbers.relative_with_interval(figure)}"
        for entry, figure in zip(entries, figures, strict=True)
    ]
    dots = {
        "type": "scatter",
        "mode": "markers",
        "x": [_finite(figure.mean * 100) for figure in figures],
        "y": list(range(len(entries))),
        "marker": {"size": 11, "color": [colour(style[entry.arm.name].colour) for entry in entries]},
        "error_x": _error_bars([None if f.half_width is None else f.half_width * 100 for f in figures]),
        "hovertemplate": "%{x:+.1f} %<extra></extra>",
    }
    zero = {"type": "line", "xref": "x", "yref": "paper", "x0": 0, "x1": 0, "y0": 0, "y1": 1}
    layout = {
        "xaxis": {"title": {"text": "Difference in Goodput, %"}, "ticksuffix": " %"},
        "yaxis": _names(entries),
        "shapes": [{**zero, "line": {"color": colour("reference"), "width": 2, "dash": "dash"}}],
        "showlegend": False,
    }
    alternative = f"Difference in Goodput to {comparison.reference}, seed by seed: {'; '.join(texts)}."
    return Chart("difference", "Against the reference", alternative, [dots], layout, _bar_height(len(entries)))


def ttft_chart(comparison: Comparison, fleet: Fleet) -> Chart:
    """Share of completed requests whose first token came within a time, all seeds together, time on a log axis."""
    style = looks(comparison)
    traces = []
    for entry in comparison.ranked():
        edges, reached = _cumulative(entry)
        drawn = style[entry.arm.name]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": label(entry.arm.name),
                "x": edges,
                "y": reached,
                "line": {"color": colour(drawn.colour), "dash": drawn.dash, "width": 2},
                "hovertemplate": "%{y:.1f} % within %{x:.3g} s<extra></extra>",
            }
        )
    layout = {
        "xaxis": {"type": "log", "title": {"text": "Time to first token, s (log scale)"}, **_log_range(traces)},
        "yaxis": {"range": [0, 101], "title": {"text": "Completed requests, %"}, "ticksuffix": " %"},
        "showlegend": True,
        **_targets(fleet),
    }
    texts = [
        f"{entry.arm.name} P50 {numbers.duration(entry.estimate(m.TTFT_P50).mean)},"
        f" P95 {numbers.duration(entry.estimate(m.TTFT_P95).mean)},"
        f" P99 {numbers.duration(entry.estimate(m.TTFT_P99).mean)}"
        for entry in comparison.ranked()
    ]
    alternative = f"Distribution of the time to first token: {'; '.join(texts)}."
    return Chart("ttft", "Time to first token", alternative, traces, layout, _curve_height(len(traces)))


def _cumulative(entry: ArmRuns) -> tuple[list[float], list[float]]:
    """Upper bin edges and the share (in %) of requests at or below them, the bins of all seeds put together."""
    edges: FloatArray = np.concatenate([np.asarray(run.ttft_histogram[0], dtype=float)[1:] for run in entry.runs])
    counts = np.concatenate([np.asarray(run.ttft_histogram[1], dtype=float) for run in entry.runs])
    if not counts.sum():
        return [], []
    upper, bins = np.unique(edges[counts > 0].round(6), return_inverse=True)
    reached = np.cumsum(np.bincount(bins, weights=counts[counts > 0])) / counts.sum() * 100
    keep = np.unique(np.linspace(0, len(upper) - 1, MAX_CURVE_POINTS).round().astype(int))
    return upper[keep].tolist(), reached[keep].round(3).tolist()


def _log_range(traces: list[dict[str, Any]]) -> dict[str, Any]:
    """The decades that the curves need, so that labels of targets do not stretch the axis."""
    ends = [trace["x"][index] for trace in traces if trace["x"] for index in (0, -1)]
    if not ends:
        return {}
    return {"range": [math.log10(min(ends)), math.log10(max(ends)) + 0.05]}


def _targets(fleet: Fleet) -> dict[str, Any]:
    """A thin upright line at the TTFT target of each class."""
    shapes, notes = [], []
    for index, kind in enumerate(one for one in fleet.classes if one.slo.ttft_s is not None):
        at = float(kind.slo.ttft_s or 0.0)
        line = {"color": colour("muted"), "width": 1, "dash": "dot"}
        shapes.append(
            {"type": "line", "xref": "x", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1, "line": line}
        )
        notes.append(
            {
                "x": math.log10(at),
                "xref": "x",
                "y": 0.04 + 0.09 * (index % 3),
                "yref": "paper",
                "text": f"{label(kind.name, 16)} target",
                "showarrow": False,
                "xanchor": "left",
                "xshift": 4,
                "font": {"size": 11, "color": colour("muted")},
            }
        )
    return {"shapes": shapes, "annotations": notes}


def _names(entries: Sequence[ArmRuns]) -> dict[str, Any]:
    """An axis with one place an arm, first on top; two arms stay apart even where their labels are equal."""
    texts = [label(entry.arm.name) for entry in entries]
    return {"tickvals": list(range(len(texts))), "ticktext": texts, "range": [len(texts) - 0.5, -0.5]}


def _error_bars(half_widths: Sequence[float | None]) -> dict[str, Any]:
    visible = any(half is not None for half in half_widths)
    return {
        "type": "data",
        "array": [0 if half is None else half for half in half_widths],
        "visible": visible,
        "color": colour("ink"),
        "thickness": 2,
        "width": 6,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _bar_height(count: int) -> int:
    return 110 + 34 * max(count, 1)


def _curve_height(curves: int) -> int:
    return 380 + 10 * curves
