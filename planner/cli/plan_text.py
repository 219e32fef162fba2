"""Plans and their differences as tables on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from data.plan import Move, PlanDocument
from planner.outlets.explain_plan import price_text
from planner.plan_diff import PlanDiff


def print_plan(plan: PlanDocument) -> None:
    """Status, value and bound; replicas, moves, prices of what is used up, and what is unmet."""
    console = Console(soft_wrap=True)
    console.print(f"plan {plan.plan_id} for fleet {plan.fleet}: [bold]{plan.status.value}[/bold]")
    console.print(
        f"value {plan.objective:,.0f}, bound {plan.bound:,.0f} ({plan.bound_name}), gap {plan.gap:.2%}; "
        f"expected {plan.goodput_tokens_per_s:,.0f} output tokens/s; solved in {plan.solve_s:.1f} s"
    )
    _print_replicas(console, plan)
    _print_moves(console, plan)
    _print_prices(console, plan)
    _print_unmet(console, plan)


def _print_replicas(console: Console, plan: PlanDocument) -> None:
    table = Table("site", "model", "configuration", title="Replicas", title_justify="left")
    for name in ("replicas", "GPUs", "prewarmed"):
        table.add_column(name, justify="right")
    for row in plan.replicas:
        gpus = row.replicas * row.gpus_per_replica
        table.add_row(row.site, row.model, row.config, str(row.replicas), str(gpus), str(row.prewarmed))
    total = sum(row.replicas * row.gpus_per_replica for row in plan.replicas)
    table.add_row("total", "", "", str(sum(row.replicas for row in plan.replicas)), str(total), "")
    console.print(table)


def _print_moves(console: Console, plan: PlanDocument) -> None:
    if not plan.moves:
        console.print("no moves")
        return
    table = Table("site", "configuration", title="Moves", title_justify="left")
    for name in ("change", "begins s", "lasts s", "brings", "gives up", "costs"):
        table.add_column(name, justify="right")
    for move in plan.moves:
        figures = [_known(move.gain), _known(move.gives_up), f"{move.cost + move.lost_cache:,.0f}"]
        table.add_row(move.site, move.config, f"{move.change:+d}", *_moments(move), *figures)
    console.print(table)
    console.print("brings, gives up: value-weighted tokens/s; costs: value-weighted tokens, once")
    for move in plan.moves:
        stopped = f"; one more is stopped by {', '.join(move.binding)}" if move.binding else ""
        console.print(f"{move.change:+d} {move.config} at {move.site}: {move.reason}{stopped}")


def _moments(move: Move) -> tuple[str, str]:
    """First and last begin, and length, s."""
    if not move.begin_s:
        return "", ""
    ends = dict.fromkeys((move.begin_s[0], move.begin_s[-1]))
    return "–".join(f"{moment:.0f}" for moment in ends), f"{move.lasts_s:.0f}"


def _known(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _print_prices(console: Console, plan: PlanDocument) -> None:
    for price in plan.prices:
        console.print(price_text(price))


def _print_unmet(console: Console, plan: PlanDocument) -> None:
    if not plan.unmet:
        console.print("everything is placed and every promise is kept")
        return
    table = Table("what", "tenant", "model", "class", title="Unmet", title_justify="left")
    table.add_column("missing", justify="right")
    table.add_column("reason")
    for row in plan.unmet:
        missing = f"{row.missing:,.0f} {row.unit}" if row.unit else ""
        table.add_row(row.what, row.tenant, row.model, row.workload_class, missing, row.reason)
    console.print(table)


def print_diff(changes: PlanDiff) -> None:
    """Replicas and shares that differ, and the totals."""
    console = Console(soft_wrap=True)
    console.print(
        f"{changes.old_id} -> {changes.new_id}: GPUs {changes.gpus_before} -> {changes.gpus_after}, "
        f"value {changes.objective_before:,.0f} -> {changes.objective_after:,.0f}"
    )
    if not changes.places and not changes.shares:
        console.print("no differences")
        return
    table = Table("site", "configuration", "replicas", "prewarmed", "GPUs", title="Replicas", title_justify="left")
    for place in changes.places:
        replicas = f"{place.replicas_before} -> {place.replicas_after}"
        prewarmed = f"{place.prewarmed_before} -> {place.prewarmed_after}"
        table.add_row(place.site, place.config, replicas, prewarmed, f"{place.gpus:+d}")
    console.print(table)
    shares = Table("model", "class", "tenant", "from", "to", "share", title="Traffic", title_justify="left")
    for row in changes.shares:
        moved = f"{row.before:.1%} -> {row.after:.1%}"
        shares.add_row(row.model, row.workload_class, row.tenant, row.origin, row.site, moved)
    console.print(shares)
