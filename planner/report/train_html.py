"""The report of one training as an HTML file that opens without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from data.atomic_file import write_text_atomic
from models.card import ModelCard
from planner.report import numbers
from planner.report.html import Card
from planner.report.page import render_page
from planner.report.train_charts import density_chart, groups_chart, groups_of, importance_chart, residual_chart
from planner.report.train_data import TITLES, TrainReport
from planner.report.train_tables import check_table, coverage_grid, gate_reason, group_table, quantile_table


def write_train_report(report: TrainReport, path: Path) -> None:
    """Write the page to ``path``, whole or not at all.

    Raises:
        OSError: The folder is missing or not writable.
    """
    write_text_atomic(path, render_train_report(report))


def render_train_report(report: TrainReport) -> str:
    """The page as HTML text; the same input gives the same text."""
    card = report.card
    density = [density_chart(view) for view in report.views]
    residual = [residual_chart(view) for view in report.views]
    groups = [groups_chart(card, view.target) for view in report.views]
    importance = importance_chart(card)
    context: dict[str, Any] = {
        "card": card,
        "promoted": report.promoted,
        "reason": gate_reason(card),
        "headlines": headlines(card),
        "density": density,
        "residual": residual,
        "groups": groups,
        "importance": importance,
        "grids": [coverage_grid(card, view.target) for view in report.views],
        "group_tables": [group_table(card, view.target) for view in report.views],
        "quantiles": quantile_table(card),
        "checks": check_table(card),
        "facts": facts(report),
    }
    return render_page("train.html.jinja", [*density, *residual, *groups, importance], context)


def headlines(card: ModelCard) -> list[Card]:
    """The error of each target beside its rivals', and the coverage of the highest quantile."""
    cards = []
    level = str(card.quantiles[-1])
    for target, title in TITLES.items():
        model, prior, peer = (
            next((one for one in groups_of(card, whose, target) if one["group"] == "all"), {})
            for whose in ("model", "prior", "peer")
        )
        errors = [_share(one.get("median_error")) for one in (model, prior, peer)]
        cards.append(Card(f"{title} median error", errors[0], f"prior {errors[1]}, peers' recipe {errors[2]}"))
        covered = _share(model.get("coverage", {}).get(level))
        cards.append(Card(f"{title} at or below p{float(level) * 100:g}", covered, f"of {model.get('rows', 0):,}"))
    return cards


def facts(report: TrainReport) -> list[tuple[str, str]]:
    """What the model was made of, as (name, text)."""
    card = report.card
    data = card.data
    left_out = ", ".join(f"{reason} {count:,}" for reason, count in data["left_out"].items()) or "none"
    boost = ", ".join(f"{name} {value:g}" for name, value in card.boost.items())
    found = [
        ("Version", card.version),
        ("Made", card.created_at),
        ("Rows", f"{data['rows']:,} of {data['runs']} run(s), {data['censored']:,} only bounded"),
        (
            "Window",
            f"{numbers.duration(data['since_s'])} to {numbers.duration(data['until_s'])} on the log's clock",
        ),
        ("Left out", left_out),
        ("GPU types", ", ".join(card.gpu_types)),
        ("Models", ", ".join(card.models)),
        ("Settings", boost),
        ("Libraries", ", ".join(f"{name} {version}" for name, version in card.libraries.items())),
    ]
    found += [("Source", source) for source in report.sources]
    found += [("Skipped", f"{what}: {why}") for what, why in report.skipped]
    return [*found, ("Command", report.command)] if report.command else found


def _share(value: float | None) -> str:
    return numbers.MISSING if value is None else numbers.share(value)
