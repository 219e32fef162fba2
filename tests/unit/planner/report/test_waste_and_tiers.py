"""The tables of wasted tokens and of tiers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.compare import ArmRuns, Comparison
from planner.report.tables import comparison_tables
from planner.sim.result import RunResult


def spread(run: RunResult) -> RunResult:
    """The run with waste by cause, and two tiers."""
    total = replace(run.total, wasted_tokens={"late": 12_000, "cancelled": 340, "failed": 0, "repeated": 56})
    return replace(run, total=total, by_tier={"guaranteed": run.total, "best_effort": run.total})


def spread_all(comparison: Comparison) -> Comparison:
    arms = tuple(ArmRuns(entry.arm, tuple(spread(run) for run in entry.runs)) for entry in comparison.arms)
    return replace(comparison, arms=arms)


def test_waste_stands_by_cause(comparison_maker: Callable[..., Comparison]) -> None:
    tables = {table.title: table for table in comparison_tables(spread_all(comparison_maker()))}
    table = next(table for title, table in tables.items() if title.startswith("Tokens computed for nothing"))
    assert table.columns == ("Policy", "Late", "Cancelled", "Failed", "Repeated", "Preempted")
    for row in table.rows:
        assert row.cells[1:] == ("12,000", "340", "0", "56", "0")


def test_tiers_have_a_table_where_there_are_several(comparison_maker: Callable[..., Comparison]) -> None:
    plain = comparison_maker()
    assert not [table for table in comparison_tables(plain) if table.title.startswith("By tier")]
    (table,) = [table for table in comparison_tables(spread_all(plain)) if table.title.startswith("By tier")]
    assert table.columns == ("Policy", "best_effort", "guaranteed")
