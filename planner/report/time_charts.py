"""Queue and KV use over time for each site, and predicted against observed latency."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from data.types import FloatArray
from planner.compare import ArmRuns, Comparison
from planner.report import numbers
from planner.report.charts import Chart, colour, label, looks
from planner.report.data import ModelQuality

MAX_SCATTER = 1500


def shown_over_time(comparison: Comparison) -> list[ArmRuns]:
    """Best arm and reference (or the runner-up when the reference is best): two curves stay readable."""
    ranked = comparison.ranked()
    if len(ranked) == 1:
        return ranked
    other = ranked[1] if ranked[0].arm.name == comparison.reference else comparison.arm(comparison.reference)
    return [ranked[0], other]


def site_charts(comparison: Comparison) -> list[Chart]:
    """For each site one chart with waiting requests above and KV use below, of the first seed."""
    entries = shown_over_time(comparison)
    sites = sorted({site for entry in entries for site in entry.runs[0].timeline.sites})
    return [_site_chart(comparison, entries, site, f"site-{index}") for index, site in enumerate(sites)]


def _site_chart(comparison: Comparison, entries: list[ArmRuns], site: str, chart_id: str) -> Chart:
    style = looks(comparison)
    traces: list[dict[str, Any]] = []
    texts = []
    for entry in entries:
        drawn = style[entry.arm.name]
        line = {"color": colour(drawn.colour), "dash": drawn.dash, "width": 2}
        minutes, waiting, kv_use = _series(entry, site)
        common: dict[str, Any] = {
            "type": "scatter",
            "mode": "lines",
            "x": _rounded(minutes),
            "name": label(entry.arm.name),
        }
        common |= {"line": line, "legendgroup": entry.arm.name}
        hover = "%{y:.1f} waiting at %{x:.1f} min<extra></extra>"
        traces.append({**common, "y": _rounded(waiting), "yaxis": "y2", "hovertemplate": hover})
        hover = "%{y:.0f} % of KV blocks at %{x:.1f} min<extra></extra>"
        traces.append({**common, "y": _rounded(kv_use * 100), "showlegend": False, "hovertemplate": hover})
        if len(waiting):
            texts.append(
                f"{entry.arm.name}: {numbers.plain(float(waiting.mean()))} waiting on average, at most"
                f" {numbers.plain(float(waiting.max()))}; KV use {numbers.share(float(kv_use.mean()))} on average"
            )
    layout = {
        "xaxis": {"title": {"text": "Time, min"}},
        "yaxis": {"domain": [0, 0.44], "title": {"text": "KV use, %"}, "range": [0, 101]},
        "yaxis2": {"domain": [0.56, 1], "title": {"text": "Waiting requests"}, "rangemode": "tozero"},
        "showlegend": True,
    }
    return Chart(chart_id, f"Site {site}", f"{'. '.join(texts)}.", traces, layout, 400)


def _series(entry: ArmRuns, site: str) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Minutes, waiting requests and KV use (0 to 1) of one site in the first seed's run."""
    timeline = entry.runs[0].timeline
    nothing: FloatArray = np.zeros(0)
    if site not in timeline.sites:
        return nothing, nothing, nothing
    column = timeline.sites.index(site)
    waiting = _columns(timeline.waiting)[:, column]
    kv_use = _columns(timeline.kv_use)[:, column]
    minutes: FloatArray = np.arange(len(waiting), dtype=np.float64) * np.float64(timeline.step_s / 60.0)
    return minutes, waiting, kv_use


def _columns(values: FloatArray) -> FloatArray:
    return values if values.ndim == 2 else values[:, None]


def quality_charts(quality: ModelQuality) -> list[Chart]:
    """Predicted against observed on log axes with the diagonal, and coverage of each quantile."""
    return [_scatter_chart(quality), _coverage_chart(quality)]


def _scatter_chart(quality: ModelQuality) -> Chart:
    predicted, observed = quality.predicted_s, quality.observed_s
    usable = np.isfinite(predicted) & np.isfinite(observed) & (predicted > 0) & (observed > 0)
    predicted, observed = predicted[usable], observed[usable]
    step = max(1, math.ceil(len(predicted) / MAX_SCATTER))
    predicted, observed = predicted[::step], observed[::step]
    ends = np.concatenate([predicted, observed])
    low, high = (float(ends.min()), float(ends.max())) if len(ends) else (0.001, 1.0)
    dots = {
        "type": "scatter",
        "mode": "markers",
        "x": _rounded(observed, 5),
        "y": _rounded(predicted, 5),
        "marker": {"size": 5, "opacity": 0.45, "color": colour("series-0")},
        "hovertemplate": "observed %{x:.3g} s, predicted %{y:.3g} s<extra></extra>",
    }
    diagonal = {
        "type": "scatter",
        "mode": "lines",
        "x": [low, high],
        "y": [low, high],
        "line": {"color": colour("reference"), "dash": "dash", "width": 1.5},
        "hoverinfo": "skip",
    }
    layout = {
        "xaxis": {"type": "log", "title": {"text": f"Observed {quality.target}, s (log scale)"}},
        "yaxis": {"type": "log", "title": {"text": f"Predicted {quality.target}, s (log scale)"}},
        "showlegend": False,
    }
    alternative = (
        f"Predicted against observed {quality.target}: median error {numbers.share(quality.median_error)}."
    )
    title = f"{quality.target}: predicted against observed"
    return Chart(f"quality-{quality.target.lower()}", title, alternative, [dots, diagonal], layout, 360)


def _coverage_chart(quality: ModelQuality) -> Chart:
    known = [(level * 100, share * 100) for level, share in quality.coverage if math.isfinite(share)]
    levels, reached = [level for level, _ in known], [share for _, share in known]
    dots = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": levels,
        "y": reached,
        "marker": {"size": 10, "color": colour("series-0")},
        "line": {"color": colour("series-0"), "width": 2},
        "hovertemplate": "P%{x:.0f}: %{y:.1f} % of observations<extra></extra>",
    }
    diagonal = {
        "type": "scatter",
        "mode": "lines",
        "x": [0, 100],
        "y": [0, 100],
        "line": {"color": colour("reference"), "dash": "dash", "width": 1.5},
        "hoverinfo": "skip",
    }
    layout = {
        "xaxis": {"title": {"text": "Predicted quantile, %"}, "range": [0, 101]},
        "yaxis": {"title": {"text": "Observations at or below it, %"}, "range": [0, 101]},
        "showlegend": False,
    }
    texts = [f"P{level:.0f} covers {value:.1f} %" for level, value in zip(levels, reached, strict=True)]
    return Chart(
        f"coverage-{quality.target.lower()}", f"{quality.target}: coverage of the quantiles",
        f"{'; '.join(texts)}.", [dots, diagonal], layout, 360,
    )  # fmt: skip


def _rounded(values: FloatArray, digits: int = 3) -> list[float]:
    return [round(float(value), digits) for value in values]
