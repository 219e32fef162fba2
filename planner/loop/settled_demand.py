"""Demand that a plan may shrink on: known for several steps in a row, by every source that counts.

A source that is silent is *unknown*, never zero. While any source does not know a commodity, and for
``steps`` steps after it knows again, its models may grow on what is known and do not shrink. A demand that fell
is believed once it has been low for as long (the largest forecast of these steps counts), so that one odd window,
or a source that restarted and counts from zero, takes no replica away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from data.errors import InputError
from data.fleet.types import Fleet, Placed
from planner.demand import CommodityKey, DemandRow, DemandTable, demand_table


def combined(tables: Sequence[DemandTable | None], notes: Sequence[str] = ()) -> DemandTable | None:
    """What several sources say together: the larger forecast of each commodity.

    ``None`` in place of a table is a source that failed. A commodity that any source is silent about is missing.

    Returns:
        ``None`` if every source failed.
    """
    known = [table for table in tables if table is not None]
    if not known:
        return None
    rows: dict[CommodityKey, DemandRow] = {}
    for table in known:
        for row in table.rows:
            rows[row.key] = _larger(rows.get(row.key), row)
    missing = {key for table in known for key in table.missing}
    if len(known) < len(tables):
        missing |= set(rows)
    spoken = [note for table in known for note in table.notes]
    made = demand_table(rows.values(), missing, dict.fromkeys([*spoken, *notes]))
    return replace(made, clamped=sum(table.clamped for table in known))


def settled(recent: Sequence[DemandTable], steps: int) -> DemandTable:
    """The newest demand, with falls and returns believed only after ``steps`` steps.

    Args:
        recent: Tables of the last steps, oldest first, the newest last; at least one. Failed steps are left out by
            the caller, who starts anew after them.
        steps: Steps in a row that must know a commodity before its models may shrink (1 or more).

    Raises:
        InputError: There is no table.
    """
    if not recent:
        raise InputError("no demand to plan for", expected="one step or more")
    newest, window = recent[-1], recent[-steps:]
    rows = {row.key: row for row in newest.rows}
    for table in window[:-1]:
        for row in table.rows:
            rows[row.key] = _larger(row, rows[row.key]) if row.key in rows else row
    unsettled = {key for table in window for key in table.missing}
    notes = list(newest.notes)
    if len(window) < steps:
        unsettled |= set(rows)
        notes.append(f"demand is known for {len(window)} of {steps} steps: models may grow and do not shrink")
    returned = unsettled - set(newest.missing)
    if returned and len(window) == steps:
        notes.append(f"{len(returned)} commodities are not known for {steps} steps: their models do not shrink")
    return replace(demand_table(rows.values(), unsettled, notes), clamped=newest.clamped)


def hold_running(demand: DemandTable, fleet: Fleet, running: Sequence[Placed]) -> DemandTable:
    """The same demand, with every running model unknown that no row names.

    A settled table that lacks a model says that it has no demand; one that is not settled does not say that.
    """
    named = {row.model for row in demand.rows} | demand.held_models()
    models = {fleet.config(one.config).model for one in running if one.replicas} - named
    if not (models and fleet.classes and fleet.tenants and fleet.sites):
        return demand
    where = (fleet.classes[0].name, fleet.tenants[0].name, fleet.sites[0].name)
    held = [(model, *where) for model in sorted(models)]
    return replace(demand, missing=tuple(sorted({*demand.missing, *held})))


def _larger(one: DemandRow | None, other: DemandRow) -> DemandRow:
    """Both forecasts level by level, with the lengths of ``other`` where it has them."""
    if one is None:
        return other
    quantiles = tuple(max(pair) for pair in zip(one.quantiles, other.quantiles, strict=True))
    return DemandRow(
        *other.key,
        quantiles,
        one.input_tokens if other.input_tokens is None else other.input_tokens,
        one.output_tokens if other.output_tokens is None else other.output_tokens,
        one.input_variation if other.input_variation is None else other.input_variation,
    )
