"""The report as one HTML file that opens without a network: script, styles, data and drawings are all inside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from data.atomic_file import write_text_atomic
from planner import measures as m
from planner.compare import Comparison
from planner.report import numbers, tables
from planner.report.attainment import attainment_grid
from planner.report.charts import difference_chart, goodput_chart, ttft_chart
from planner.report.data import ReportData
from planner.report.fleet_map import narrow_map, wide_map
from planner.report.page import render_page
from planner.report.plan_tables import fleet_tables, plan_facts
from planner.report.time_charts import quality_charts, shown_over_time, site_charts
from planner.report.why import explain


@dataclass(frozen=True, slots=True)
class Card:
    """One headline figure."""

    label: str
    value: str
    detail: str


def write_report(data: ReportData, path: Path) -> None:
    """Write the report to ``path``, whole or not at all.

    Raises:
        OSError: The folder is missing or not writable.
    """
    write_text_atomic(path, render(data))


def render(data: ReportData) -> str:
    """The report as HTML text; the same data gives the same text."""
    comparison = data.comparison
    several = len(comparison.arms) > 1
    over_time = site_charts(comparison)
    quality = [chart for entry in data.quality for chart in quality_charts(entry)]
    goodput, ttft = goodput_chart(comparison), ttft_chart(comparison, data.fleet)
    difference = difference_chart(comparison) if several else None
    charts = [goodput, *([difference] if difference else []), ttft, *over_time, *quality]
    context: dict[str, Any] = {
        "data": data,
        "several": several,
        "why": explain(comparison),
        "cards": headline_cards(comparison),
        "run_facts": _run_facts(data),
        "plan_facts": plan_facts(data.plan) if data.plan is not None else [],
        "fleet_tables": fleet_tables(data.fleet, data.plan),
        "map_wide": Markup(wide_map(data.fleet, data.plan)),
        "map_narrow": Markup(narrow_map(data.fleet, data.plan)),
        "goodput": goodput,
        "difference": difference,
        "difference_table": tables.difference_table(comparison) if several else None,
        "ttft": ttft,
        "over_time": over_time,
        "over_time_arms": [entry.arm.name for entry in shown_over_time(comparison)],
        "grids": [attainment_grid(comparison, kind) for kind in m.GROUP_KINDS],
        "quality": quality,
        "quality_facts": _quality_facts(data),
        "summary_tables": tables.comparison_tables(comparison),
        "full_table": tables.full_table(comparison),
        "interval_note": tables.interval_note(comparison),
        "output_only": tables.OUTPUT_ONLY,
    }
    return render_page("report.html.jinja", charts, context)


def headline_cards(comparison: Comparison) -> list[Card]:
    """The figures a reader looks for first: of the best arm, beside the reference."""
    best, reference = comparison.best(), comparison.arm(comparison.reference)
    several = best.arm.name != comparison.reference
    cards = [
        Card(
            "Most Goodput",
            best.arm.name,
            numbers.with_interval(best.estimate(m.GOODPUT), "tokens/s") + " tokens/s",
        )
    ]
    if several:
        change = comparison.relative_difference(best.arm.name)
        bounds = numbers.relative_with_interval(change).partition(" (")[2].rstrip(")")
        detail = f"95 % interval {bounds} %" if change.half_width is not None else "no interval"
        cards.append(Card(f"Goodput against {comparison.reference}", numbers.signed_share(change.mean), detail))
    for measure in (m.ATTAINMENT_OFFERED, m.TTFT_P95, m.HIT_RATE):
        value = numbers.number(best.estimate(measure).mean, measure.unit)
        other = numbers.number(reference.estimate(measure).mean, measure.unit)
        cards.append(Card(measure.label, value, f"{comparison.reference}: {other}" if several else best.arm.name))
    return cards


def _run_facts(data: ReportData) -> list[tuple[str, str]]:
    trace, comparison = data.trace, data.comparison
    length = comparison.arms[0].runs[0].duration_s
    facts = [
        ("Fleet", data.fleet.name),
        ("Trace", trace.source),
        ("Requests", f"{trace.requests:,} over {numbers.duration(trace.span_s)} at speed {trace.speed:g}"),
        ("Tokens", f"{trace.input_tokens:,} in, {trace.output_tokens:,} out"),
        ("Test period", f"{numbers.duration(length)} (first seed, {comparison.arms[0].arm.name})"),
        ("Policies", ", ".join(entry.arm.name for entry in comparison.arms)),
        ("Reference", comparison.reference),
        ("Seeds", ", ".join(str(seed) for seed in comparison.seeds)),
    ]
    facts += [("Rows skipped", f"{count:,} {reason}") for reason, count in trace.skipped_rows]
    facts += [("Left out", f"{what}: {why}") for what, why in data.skipped]
    return [*facts, *data.settings]


def _quality_facts(data: ReportData) -> list[str]:
    lines = []
    for entry in data.quality:
        text = f"{entry.target}: median error {numbers.share(entry.median_error)}"
        if entry.prior_median_error is not None:
            text += f", the physics prior alone {numbers.share(entry.prior_median_error)}"
        text += f"; {len(entry.predicted_s):,} requests"
        lines.append(f"{text}{'; model ' + entry.model_version if entry.model_version else ''}.")
    return lines
