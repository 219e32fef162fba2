"""Tables about the fleet and its plan: sites, links, replicas, moves, what stays unserved."""

from __future__ import annotations

from data.fleet.types import Fleet
from data.plan import PlanDocument
from planner.report import numbers
from planner.report.fleet_map import pool_use
from planner.report.table import Row, Table


def fleet_tables(fleet: Fleet, plan: PlanDocument | None) -> list[Table]:
    """Sites, links and replicas; with a plan also its moves and what it leaves unserved (both may be empty)."""
    tables = [placement_table(fleet, plan), site_table(fleet, plan)]
    if fleet.links:
        tables.append(link_table(fleet))
    if plan is not None:
        tables += [moves_table(plan), unmet_table(plan)]
    return tables


def site_table(fleet: Fleet, plan: PlanDocument | None) -> Table:
    """GPUs of each pool: taken by replicas, kept out of the planner's reach, free."""
    rows = []
    for site in fleet.sites:
        uses = pool_use(fleet, plan, site.name)
        if not uses:
            rows.append(Row((site.name, site.zone, f"none ({site.role})", "0", "0", "0", "0")))
        for use in uses:
            free = use.count - use.reserved - use.used
            figures = (str(use.count), str(use.used), str(use.reserved), str(free))
            rows.append(Row((site.name, site.zone, use.gpu_type, *figures)))
    columns = ("Site", "Zone", "GPU type", "GPUs", "Taken", "Reserved", "Free")
    return Table("Sites and GPU pools", columns, tuple(rows), left=3)


def link_table(fleet: Fleet) -> Table:
    """Network paths between sites."""
    rows = tuple(
        Row(
            (
                f"{link.a} – {link.b}",
                numbers.duration(link.rtt_s),
                numbers.plain(link.bandwidth_gbps),
                numbers.plain(link.price_per_gb),
            )
        )
        for link in fleet.links
    )
    return Table("Links", ("Link", "RTT", "Bandwidth (Gbit/s)", "Price per GB"), rows)


def placement_table(fleet: Fleet, plan: PlanDocument | None) -> Table:
    """Replicas and prewarmed copies per site and configuration, beside those that run now."""
    running = {(one.site, one.config): one for one in fleet.placement}
    planned = {(one.site, one.config): one for one in plan.replicas} if plan is not None else {}
    configs = {config.name: config for config in fleet.configs}
    rows = []
    for key in sorted(running.keys() | planned.keys()):
        now, then, config = running.get(key), planned.get(key), configs.get(key[1])
        model = then.model if then is not None else config.model if config is not None else ""
        figures = [str(now.replicas if now is not None else 0), str(now.prewarmed if now is not None else 0)]
        if plan is not None:
            figures += [
                str(then.replicas if then is not None else 0),
                str(then.prewarmed if then is not None else 0),
            ]
        rows.append(Row((key[0], key[1], model, *figures)))
    columns = ["Site", "Configuration", "Model", "Running", "Prewarmed"]
    if plan is not None:
        columns += ["Planned", "Planned prewarmed"]
    return Table("Replicas by site", tuple(columns), tuple(rows), left=3)


def moves_table(plan: PlanDocument) -> Table:
    """Changes against the running placement, each with its cost."""
    rows = tuple(
        Row((move.site, move.config, move.reason, f"{move.change:+d}".replace("-", "−"), numbers.plain(move.cost)))
        for move in plan.moves
    )
    note = "" if rows else "No move: the running placement already is the plan."
    columns = ("Site", "Configuration", "Reason", "Replicas", "Cost (weighted tokens)")
    return Table("Moves against the running placement", columns, rows, note, left=3)


def unmet_table(plan: PlanDocument) -> Table:
    """Demand and promises that the plan leaves unserved, with the reason."""
    rows = tuple(
        Row(
            (
                gap.what,
                gap.model,
                gap.workload_class,
                gap.tenant,
                gap.reason,
                f"{numbers.plain(gap.missing)} {gap.unit}",
            )
        )
        for gap in plan.unmet
    )
    note = "" if rows else "Nothing is left unserved."
    columns = ("What", "Model", "Class", "Tenant", "Reason", "Missing")
    return Table("Unmet demand", columns, rows, note, left=5)


def plan_facts(plan: PlanDocument) -> list[tuple[str, str]]:
    """Name and value of what a reader asks of a plan first."""
    return [
        ("Plan", plan.plan_id),
        ("Status", plan.status.value.replace("_", " ")),
        ("Planned Goodput", f"{numbers.plain(plan.goodput_tokens_per_s)} tokens/s"),
        ("Objective", f"{numbers.plain(plan.objective)} weighted tokens/s"),
        ("Best bound", f"{numbers.plain(plan.bound)} ({plan.bound_name})"),
        ("Gap", f"{plan.gap * 100:.2f} %"),
        (
            "Moves",
            f"{len(plan.moves)}, costing {numbers.plain(sum(move.cost for move in plan.moves))} weighted tokens",
        ),
        ("Solver", f"{plan.solver}, {numbers.duration(plan.solve_s)}"),
        ("Valid", f"{_moment(plan.valid_from)} to {_moment(plan.valid_until)}"),
    ]


def _moment(iso: str) -> str:
    return iso.replace("T", " ").replace("Z", " UTC")
