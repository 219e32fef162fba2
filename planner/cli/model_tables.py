"""Tables that show trained models: errors and coverage by group, and models side by side."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from models.card import TARGETS, ModelCard
from planner.report.table import print_tables
from planner.report.train_tables import (
    comparison_tables,
    coverage_table,
    gate_reason,
    group_table,
    quantile_table,
)

TITLES = {"ttft_s": "TTFT", "tpot_s": "TPOT"}


def print_report(card: ModelCard) -> None:
    """Errors of the model and its rivals on the newest window, the gate's verdict, and what the trees split on."""
    tables = [table for target in TARGETS for table in (group_table(card, target), coverage_table(card, target))]
    print_tables([*tables, quantile_table(card)])
    console = Console(width=max(Console().width, 100))
    for target in TARGETS:
        best = sorted(card.importance[target].items(), key=lambda item: -item[1])[:6]
        shares = ", ".join(f"{name} {share:.0%}" for name, share in best)
        console.print(f"{TITLES[target]} split gain: {shares}")
    left_out = ", ".join(f"{reason} {count}" for reason, count in card.data["left_out"].items()) or "none"
    console.print(
        f"{card.data['rows']:,} rows of {card.data['runs']} run(s), {card.data['censored']:,} only bounded;"
        f" left out: {left_out}"
    )
    console.print(f"gate: {gate_reason(card)}", highlight=False)
    console.print(f"crossing rate before sorting {card.checks['crossing_rate']:.2%}", highlight=False)


def print_comparison(cards: list[ModelCard], serving: str | None) -> None:
    """One line a version."""
    table = Table(title="latency models")
    for name in ("version", "made", "rows", "loss", "prior loss", "TTFT error", "TPOT error", "serving"):
        table.add_column(name, justify="left" if name in ("version", "made", "serving") else "right")
    for card in cards:
        values = summary(card)
        table.add_row(
            card.version,
            card.created_at,
            f"{values['rows']:,}",
            _number(values["loss"], "{:.4f}"),
            _number(values["prior_loss"], "{:.4f}"),
            _number(values["ttft_error"], "{:.1%}"),
            _number(values["tpot_error"], "{:.1%}"),
            "yes" if card.version == serving else "",
        )
    Console().print(table)


def summary(card: ModelCard) -> dict[str, Any]:
    """The few values by which versions are told apart."""
    overall = {group["target"]: group for group in _groups(card, "model") if group["group"] == "all"}
    return {
        "version": card.version,
        "created_at": card.created_at,
        "rows": card.data["rows"],
        "loss": card.report["model"]["loss"],
        "prior_loss": card.report["prior"]["loss"],
        "ttft_error": overall["ttft_s"]["median_error"],
        "tpot_error": overall["tpot_s"]["median_error"],
        "quantiles": list(card.quantiles),
        "gpu_types": list(card.gpu_types),
    }


def print_groups(cards: list[ModelCard]) -> None:
    """The measures of several models by group: error, bias and coverage, a column a version."""
    print_tables([table for target in TARGETS for table in comparison_tables(cards, target)])


def _groups(card: ModelCard, whose: str) -> list[dict[str, Any]]:
    return list(card.report[whose]["groups"])


def _number(value: float | None, form: str) -> str:
    return "–" if value is None or value != value else form.format(value)
