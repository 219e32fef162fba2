"""Plans and their differences as tables on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from data.plan import PlanDocument
from planner.plan_diff import PlanDiff


def print_plan(plan: PlanDocument) -> None:
    """Status, value and bound; replicas, moves, and what is unmet."""
    console = Console(soft_wrap=True)
    console.print(f"plan {plan.plan_id} for fleet {plan.fleet}: [bold]{plan.status.value}[/bold]")
    console.print(
        f"value {plan.objective:,.0f}, bound {plan.bound:,.0f} ({plan.bound_name}), gap {plan.gap:.2%}; "
        f"expected {plan.goodput_tokens_per_s:,.0f} output tokens/s; solved in {plan.solve_s:.1f} s"
    )
    _print_replicas(console, plan)
    _print_moves(console, plan)
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
    table.add_column("change", justify="right")
    table.add_column("cost", justify="right")
    table.add_column("reason")
    for move in plan.moves:
        table.add_row(move.site, move.config, f"{move.change:+d}", f"{move.cost:,.0f}", move.reason)
    console.print(table)


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
