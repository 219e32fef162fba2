"""Tables that show trained models: errors and coverage by group, and models side by side."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from models.card import TARGETS, ModelCard

TITLES = {"ttft_s": "TTFT", "tpot_s": "TPOT"}


def print_report(card: ModelCard) -> None:
    """Errors of the model and the prior on the newest window, and what the trees split on."""
    console = Console(width=max(Console().width, 100))
    for target in TARGETS:
        console.print(_errors(card, target))
    for target in TARGETS:
        best = sorted(card.importance[target].items(), key=lambda item: -item[1])[:6]
        shares = ", ".join(f"{name} {share:.0%}" for name, share in best)
        console.print(f"{TITLES[target]} split gain: {shares}")
    left_out = ", ".join(f"{reason} {count}" for reason, count in card.data["left_out"].items()) or "none"
    console.print(
        f"{card.data['rows']:,} rows of {card.data['runs']} run(s), {card.data['censored']:,} only bounded;"
        f" left out: {left_out}"
    )
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


def _errors(card: ModelCard, target: str) -> Table:
    weighted = ", weighted by tokens" if target == "tpot_s" else ""
    title = f"{TITLES[target]} on the newest window: median relative error, pinball loss, coverage{weighted}"
    table = Table(title=title)
    names = ["group", "rows", "bounded", "error", "(prior)", "loss", "(prior)"]
    names += [f"below p{level * 100:g}" for level in card.quantiles]
    for name in names:
        table.add_column(name, justify="left" if name == "group" else "right")
    prior = {group["group"]: group for group in _groups(card, "prior") if group["target"] == target}
    for group in _groups(card, "model"):
        if group["target"] != target:
            continue
        other = prior[group["group"]]
        table.add_row(
            group["group"].replace(":", " "),
            f"{group['rows']:,}",
            f"{group['censored']:,}",
            _number(group["median_error"], "{:.1%}"),
            _number(other["median_error"], "{:.1%}"),
            _number(group["loss"], "{:.4f}"),
            _number(other["loss"], "{:.4f}"),
            *(_number(group["coverage"].get(str(level)), "{:.1%}") for level in card.quantiles),
        )
    return table


def _groups(card: ModelCard, whose: str) -> list[dict[str, Any]]:
    return list(card.report[whose]["groups"])


def _number(value: float | None, form: str) -> str:
    return "–" if value is None or value != value else form.format(value)
