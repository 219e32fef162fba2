"""Tables of a training, made from its model card: errors by group, by quantile, coverage, checks and the gate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from models.calibration import LOAD_BANDS
from models.card import ModelCard
from models.checks import MONOTONE_TOLERANCE
from planner.report import numbers
from planner.report.attainment import Cell, Grid
from planner.report.table import Row, Table
from planner.report.train_charts import group_name, groups_of
from planner.report.train_data import TITLES


def gate_reason(card: ModelCard) -> str:
    """Why the model may or may not serve, in one sentence."""
    gate = card.report.get("gate")
    if gate is None:
        return "Not judged: the card holds no verdict."
    losses = gate["losses"]
    if not gate["promote"]:
        return f"It may not serve: {'; '.join(gate['reasons'])}."
    text = f"Its loss of {losses['model']:.4f} on the newest window is below the prior's {losses['prior']:.4f}"
    if "serving" in losses:
        text += f" and the serving model's {losses['serving']:.4f}"
    return f"{text}, and all {len(card.checks)} release checks hold."


def group_table(card: ModelCard, target: str) -> Table:
    """Errors of this model, the prior and the peers' recipe by GPU type, load band and prompt band."""
    prior = {one["group"]: one for one in groups_of(card, "prior", target)}
    peer = {one["group"]: one for one in groups_of(card, "peer", target)}
    rows = []
    for group in groups_of(card, "model", target):
        name = group["group"]
        if name.startswith("gpu_load:"):
            continue
        cells = [group_name(name), f"{group['rows']:,}", f"{group['censored']:,}"]
        cells += [_share(one.get("median_error")) for one in (group, prior.get(name, {}), peer.get(name, {}))]
        cells += [_ratio(group.get("bias")), _ratio(peer.get(name, {}).get("bias"))]
        cells += [_loss(group["loss"]), _loss(prior.get(name, {}).get("loss"))]
        rows.append(Row(tuple(cells)))
    columns = (
        "group", "rows", "bounded", "error", "prior's", "peers'", "bias", "peers' bias", "loss", "prior's loss",
    )  # fmt: skip
    note = (
        "Error: median of |predicted − observed| / observed. Bias: median of predicted / observed, below 1 ="
        " optimistic. Loss: mean pinball loss of log time. Bounded: known only to be at least so long."
    )
    if target == "tpot_s":
        note += " All weighted by the tokens that a TPOT is the mean of."
    return Table(f"{TITLES[target]} by group", columns, tuple(rows), note)


def quantile_table(card: ModelCard) -> Table:
    """Coverage and loss of each predicted quantile on all rows."""
    rows = []
    for target, title in TITLES.items():
        model, prior = (
            next((one for one in groups_of(card, whose, target) if one["group"] == "all"), {})
            for whose in ("model", "prior")
        )
        for level in map(str, card.quantiles):
            cells = [f"{title} p{float(level) * 100:g}", _share(model.get("coverage", {}).get(level))]
            cells += [_share(prior.get("coverage", {}).get(level))]
            cells += [_loss(one.get("losses", {}).get(level)) for one in (model, prior)]
            rows.append(Row(tuple(cells)))
    columns = ("quantile", "covers", "prior covers", "loss", "prior's loss")
    note = "Covers: share of outcomes at or below the quantile; its level is what it should be."
    return Table("By quantile", columns, tuple(rows), note)


def coverage_grid(card: ModelCard, target: str) -> Grid:
    """Share of outcomes at or below the highest predicted quantile, a row a GPU type, a column a load band."""
    level = card.quantiles[-1]
    found = {one["group"]: one for one in groups_of(card, "model", target)}
    rows = []
    for gpu_type in card.gpu_types:
        groups = [found.get(f"gpu_load:{gpu_type}/{band}") for band in LOAD_BANDS]
        if any(groups):
            rows.append((gpu_type, tuple(_cell(group, level) for group in groups)))
    return Grid(f"{TITLES[target]}: at or below p{level * 100:g}", LOAD_BANDS, tuple(rows))


def coverage_table(card: ModelCard, target: str) -> Table:
    """The grid of :func:`coverage_grid` for a terminal."""
    grid = coverage_grid(card, target)
    rows = tuple(Row((name, *(cell.text for cell in cells))) for name, cells in grid.rows)
    return Table(grid.title, ("GPU type", *grid.columns), rows)


def comparison_tables(cards: Sequence[ModelCard], target: str) -> list[Table]:
    """Error, bias and coverage by group of several models, a column a version, each on its own newest window."""
    measures: dict[str, Callable[[ModelCard, dict[str, Any]], str]] = {
        "median error": lambda _, group: _share(group.get("median_error")),
        "predicted / observed": lambda _, group: _ratio(group.get("bias")),
        "at or below the highest quantile": lambda card, group: _share(
            group.get("coverage", {}).get(str(card.quantiles[-1]))
        ),
    }
    found = [{one["group"]: one for one in groups_of(card, "model", target)} for card in cards]
    names = list(dict.fromkeys(name for groups in found for name in groups))
    columns = ("group", *(card.version for card in cards))
    return [
        Table(
            f"{TITLES[target]}: {title}",
            columns,
            tuple(
                Row(
                    (
                        group_name(name),
                        *(text(card, g.get(name, {})) for card, g in zip(cards, found, strict=True)),
                    )
                )
                for name in names
            ),
        )
        for title, text in measures.items()
    ]


def check_table(card: ModelCard) -> Table:
    """Measured value of each release check."""
    rows = []
    for name, value in sorted(card.checks.items()):
        text = numbers.share(value) if value is not None else numbers.MISSING
        limit = f"≤ {numbers.share(MONOTONE_TOLERANCE)}" if name.startswith("falls_with_") else ""
        rows.append(Row((name, text, limit or _LIMITS.get(name, "0"))))
    return Table("Release checks", ("check", "measured", "allowed"), tuple(rows), left=1)


_LIMITS = {"crossing_rate": "reported", "beyond_an_hour": "≤ 50.0\u00a0%"}


def _cell(group: dict[str, Any] | None, level: float) -> Cell:
    """One group's coverage; darker = nearer to the level."""
    share = group["coverage"].get(str(level)) if group else None
    if group is None or share is None or not math.isfinite(share):
        return Cell(numbers.MISSING, "no rows", 0)
    off = abs(share - level)
    shade = sum(off <= step for step in (0.2, 0.1, 0.05, 0.02))
    return Cell(numbers.share(share), f"{group['rows']:,} rows, bias {_ratio(group.get('bias'))}", shade)


def _share(value: float | None) -> str:
    return numbers.MISSING if value is None else numbers.share(value)


def _loss(value: float | None) -> str:
    return numbers.MISSING if value is None or not math.isfinite(value) else f"{value:.4f}"


def _ratio(value: float | None) -> str:
    return numbers.MISSING if value is None or not math.isfinite(value) else f"{value:.3f}"
