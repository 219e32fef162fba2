"""Charts of a training: predicted against observed, residual over time, error by group, feature importance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from data.types import FloatArray
from models.card import ModelCard
from planner.report import numbers
from planner.report.charts import DASHES, Chart, colour, label
from planner.report.train_data import TITLES, TargetView

BINS = 44
"""Cells of the density along each axis."""
TIME_BINS = 40
MOST_RUNS = 4
"""Runs that are drawn over time, the longest first: clocks of different runs are unrelated."""
LEAST_ROWS = 5
"""Rows of a time bin below which nothing is drawn."""
MOST_FEATURES = 12
LOOKS = {"model": ("series-0", "circle"), "prior": ("series-1", "diamond"), "peer": ("reference", "x")}
NAMES = {"model": "this model", "prior": "prior alone", "peer": "peers' recipe"}


def density_chart(view: TargetView) -> Chart:
    """Rows of each cell of predicted against observed, both on log axes, with the diagonal."""
    ends = np.concatenate([view.observed_s, view.predicted_s])
    low, high = np.log10(np.quantile(ends, (0.001, 0.999))).tolist()
    edges = np.linspace(low - 0.02, high + 0.02, BINS + 1)
    rows, columns = (
        np.clip(np.searchsorted(edges, np.log10(values)) - 1, 0, BINS - 1)
        for values in (view.predicted_s, view.observed_s)
    )
    counts = np.bincount(rows * BINS + columns, minlength=BINS * BINS).reshape(BINS, BINS)
    shades = ("shade-1", "shade-2", "shade-3", "shade-4", "series-0")
    cells = {
        "type": "heatmap",
        "x": (10**edges).round(6).tolist(),
        "y": (10**edges).round(6).tolist(),
        # Square roots, so that thin parts show beside the thick one.
        "z": [[round(math.sqrt(count), 3) if count else None for count in row] for row in counts.tolist()],
        "text": [[f"{count:,.0f}" for count in row] for row in counts.tolist()],
        "colorscale": [[index / 4, colour(shade)] for index, shade in enumerate(shades)],
        "showscale": False,
        "hovertemplate": "observed %{x:.3g} s, predicted %{y:.3g} s: %{text} rows<extra></extra>",
    }
    ends_s = [10 ** edges[0], 10 ** edges[-1]]
    diagonal = {
        "type": "scatter",
        "mode": "lines",
        "x": ends_s,
        "y": ends_s,
        "line": {"color": colour("ink"), "dash": "dash", "width": 1.5},
        "hoverinfo": "skip",
    }
    bounds = {"range": [float(edges[0]), float(edges[-1])]}
    layout = {
        "xaxis": {"type": "log", "title": {"text": f"Observed {view.title}, s (log scale)"}, **bounds},
        "yaxis": {"type": "log", "title": {"text": f"Predicted median {view.title}, s (log scale)"}, **bounds},
        "showlegend": False,
    }
    error = float(np.median(np.abs(view.predicted_s / view.observed_s - 1.0)))
    alternative = (
        f"{len(view.observed_s):,} rows; half of them are within {numbers.share(error)} of the predicted median."
        " Darker = more rows; on the dashed line prediction and outcome are equal."
    )
    return Chart(f"density-{view.target}", view.title, alternative, [cells, diagonal], layout, 400)


def residual_chart(view: TargetView) -> Chart:
    """Observed over predicted median along the window: the median of each time bin, and its middle 80 %."""
    counts = np.bincount(view.run)
    runs = [int(run) for run in np.argsort(-counts, kind="stable")[:MOST_RUNS] if counts[run]]
    traces: list[dict[str, Any]] = []
    for place, run in enumerate(runs):
        rows = view.run == run
        minutes, low, middle, high = _over_time(
            view.decided_s[rows], view.observed_s[rows] / view.predicted_s[rows]
        )
        common: dict[str, Any] = {"type": "scatter", "x": minutes, "legendgroup": str(run)}
        if len(runs) == 1:
            edge = {"mode": "lines", "line": {"width": 0}, "showlegend": False, "hoverinfo": "skip"}
            traces.append({**common, **edge, "y": high})
            traces.append({**common, **edge, "y": low, "fill": "tonexty", "fillcolor": colour("shade-1")})
        line = {"color": colour(f"series-{place}"), "width": 2, "dash": DASHES[place]}
        hover = "%{y:.2f} times the prediction at %{x:.1f} min<extra></extra>"
        traces.append(
            {
                **common,
                "mode": "lines",
                "y": middle,
                "name": f"run {run + 1}",
                "line": line,
                "hovertemplate": hover,
            }
        )
    even = {"type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": 1, "y1": 1}
    layout = {
        "xaxis": {"title": {"text": "Decided, min on the clock of the run"}},
        "yaxis": {"type": "log", "title": {"text": f"Observed / predicted {view.title}"}, **_ratio_ticks(traces)},
        "shapes": [{**even, "line": {"color": colour("ink"), "width": 1.5, "dash": "dash"}}],
        "showlegend": len(runs) > 1,
    }
    ratio = float(np.median(view.observed_s / view.predicted_s))
    band = "; the band holds the middle 80 % of the rows" if len(runs) == 1 else ""
    left = int((counts > 0).sum()) - len(runs)
    more = f" The {len(runs)} runs with the most rows; {left} more are not drawn." if left else ""
    alternative = f"Median of observed over predicted in each time bin{band}; {ratio:.3f} in all.{more}"
    return Chart(f"residual-{view.target}", view.title, alternative, traces, layout, 320)


def _over_time(
    decided_s: FloatArray, ratio: FloatArray
) -> tuple[list[float], list[float], list[float], list[float]]:
    """Middle of each time bin in minutes, and the 0.1, 0.5 and 0.9 quantiles of ``ratio`` in it."""
    edges = np.linspace(decided_s.min(), max(decided_s.max(), decided_s.min() + 1e-6), TIME_BINS + 1)
    place = np.clip(np.searchsorted(edges, decided_s, side="right") - 1, 0, TIME_BINS - 1)
    found = []
    for index in range(TIME_BINS):
        mine = ratio[place == index]
        if len(mine) >= min(LEAST_ROWS, len(ratio)):
            middle = (edges[index] + edges[index + 1]) / 120.0
            found.append([float(middle), *np.quantile(mine, (0.1, 0.5, 0.9)).tolist()])
    minutes, low, half, high = ([round(row[column], 4) for row in found] for column in range(4))
    return minutes, low, half, high


def _ratio_ticks(traces: list[dict[str, Any]]) -> dict[str, Any]:
    """A log axis with even steps around 1, wide enough for what is drawn."""
    values = [abs(math.log(value)) for trace in traces for value in trace["y"] if value > 0]
    reach = max(math.exp(max(values, default=0.1)) * 1.05, 1.2)
    ticks = [1.0, *(step for step in (1.1, 1.25, 1.5, 2, 3, 5, 10, 30, 100) if step <= reach)]
    sparse = ticks if len(ticks) <= 4 else [tick for tick in ticks if tick not in (1.1, 1.5)]
    both = sorted({*sparse, *(1 / tick for tick in sparse)})
    return {
        "range": [-math.log10(reach), math.log10(reach)],
        "tickvals": both,
        "ticktext": [f"{tick:.3g}" for tick in both],
    }


def groups_chart(card: ModelCard, target: str) -> Chart:
    """Median relative error by GPU type, load band and prompt band: this model, the prior, the peers' recipe."""
    mine = {one["group"]: one for one in groups_of(card, "model", target)}
    shown = [name for name in mine if not name.startswith("gpu_load:")]
    traces: list[dict[str, Any]] = []
    for whose, (shade, symbol) in LOOKS.items():
        errors = {one["group"]: one["median_error"] for one in groups_of(card, whose, target)}
        values = [errors.get(name) for name in shown]
        if any(value is not None for value in values):
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": NAMES[whose],
                    "x": [None if value is None else round(value * 100, 3) for value in values],
                    "y": list(range(len(shown))),
                    "marker": {"size": 11, "color": colour(shade), "symbol": symbol},
                    "hovertemplate": f"{NAMES[whose]} %{{x:.1f}} %<extra></extra>",
                }
            )
    texts = [label(group_name(name), 22) for name in shown]
    layout = {
        "xaxis": {"title": {"text": "Median relative error, %"}, "rangemode": "tozero", "ticksuffix": " %"},
        "yaxis": {"tickvals": list(range(len(shown))), "ticktext": texts, "range": [len(shown) - 0.5, -0.5]},
        "showlegend": True,
    }
    all_rows = [f"{one['name']} {_of_all(card, whose, target)}" for whose, one in zip(LOOKS, traces, strict=False)]
    alternative = f"Median relative error of {TITLES[target]} by group, further left is better. On all rows: "
    return Chart(
        f"groups-{target}", TITLES[target], f"{alternative}{', '.join(all_rows)}.", traces, layout,
        150 + 27 * len(shown),
    )  # fmt: skip


def importance_chart(card: ModelCard) -> Chart:
    """Share of the split gain of each feature, by target."""
    total = {
        name: sum(card.importance[target].get(name, 0.0) for target in TITLES)
        for name in card.importance["ttft_s"]
    }
    shown = sorted(total, key=lambda name: -total[name])[:MOST_FEATURES]
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": title,
            "x": [round(card.importance[target].get(name, 0.0) * 100, 2) for name in shown],
            "y": shown,
            "marker": {"color": colour(f"series-{place}")},
            "hovertemplate": f"{title}: %{{x:.1f}} %<extra></extra>",
        }
        for place, (target, title) in enumerate(TITLES.items())
    ]
    layout = {
        "xaxis": {"title": {"text": "Share of the split gain, %"}, "ticksuffix": " %"},
        "yaxis": {"autorange": "reversed"},
        "barmode": "group",
        "showlegend": True,
    }
    best = [
        f"{title}: {', '.join(f'{name} {share:.0%}' for name, share in _best(card.importance[target]))}"
        for target, title in TITLES.items()
    ]
    alternative = f"What the trees split on. {'; '.join(best)}."
    return Chart("importance", "Feature importance", alternative, traces, layout, 140 + 34 * len(shown))


def groups_of(card: ModelCard, whose: str, target: str) -> list[dict[str, Any]]:
    """Errors by group of the ``model``, the ``prior`` or the ``peer``; empty if the card has none of it."""
    report = card.report.get(whose, {})
    return [group for group in report.get("groups", ()) if group["target"] == target]


def group_name(group: str) -> str:
    """``load:busy`` as ``load busy``."""
    kind, _, name = group.partition(":")
    return f"{kind.replace('_', ' ').replace('gpu type', 'GPU')} {name}".strip()


def _of_all(card: ModelCard, whose: str, target: str) -> str:
    found = [one["median_error"] for one in groups_of(card, whose, target) if one["group"] == "all"]
    return numbers.share(found[0]) if found and found[0] is not None else numbers.MISSING


def _best(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(shares.items(), key=lambda item: -item[1])[:3]
