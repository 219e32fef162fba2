"""Tables: what they hold, how they read, and that text from outside stays text."""

from __future__ import annotations

import io
import math
from collections.abc import Callable

import pytest
from rich.console import Console

from planner import measures as m
from planner.compare import Comparison
from planner.intervals import Estimate
from planner.report import numbers
from planner.report.table import Row, Table, to_markdown, to_rich
from planner.report.tables import comparison_tables, full_table, headline_table, interval_note


def drawn(table: Table, width: int = 160) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(to_rich(table))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().replace(numbers.GAP, " ")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.9312, "share", "93.1 %"),
        (0.312, "s", "312 ms"),
        (0.03121, "s", "31.2 ms"),
        (0.99951, "s", "1.00 s"),
        (4.213, "s", "4.21 s"),
        (9.996, "s", "10.0 s"),
        (1320.0, "s", "1,320 s"),
        (1234.5, "tokens/s", "1,234"),
        (12.34, "tokens/s", "12.3"),
        (3.0, "count", "3"),
        (3.2, "count", "3.20"),
        (-250.0, "count", "−250"),
        (math.nan, "s", "–"),
        (math.nan, "share", "–"),
    ],
)
def test_numbers_read_well(value: float, unit: m.Unit, text: str) -> None:
    assert numbers.number(value, unit).replace(numbers.GAP, " ") == text


def test_intervals_read_well() -> None:
    plain = [
        numbers.with_interval(Estimate(1234.0, 56.0, 5), "tokens/s"),
        numbers.with_interval(Estimate(0.822, 0.008, 5), "share"),
        numbers.with_interval(Estimate(1234.0, None, 2), "tokens/s"),
        numbers.relative_with_interval(Estimate(0.182, 0.02, 5)),
        numbers.relative_with_interval(Estimate(-0.04, None, 2)),
        numbers.difference_with_interval(Estimate(-0.031, 0.002, 5), "s"),
        numbers.difference_with_interval(Estimate(0.02, 0.03, 5), "share"),
        numbers.difference_with_interval(Estimate(math.nan, None, 0), "s"),
    ]
    assert [text.replace(numbers.GAP, " ") for text in plain] == [
        "1,234 ± 56",
        "82.2 ± 0.8 %",
        "1,234",
        "+18.2 % (+16.2 to +20.2)",
        "−4.0 % (no interval)",
        "−31.0 ms (−33.0 ms to −29.0 ms)",
        "+2.0 pp (−1.0 pp to +5.0 pp)",
        "–",
    ]


def test_headline_shows_every_policy_best_first_and_says_what_is_counted(
    comparison_maker: Callable[..., Comparison],
) -> None:
    table = headline_table(comparison_maker())
    assert [row.cells[0] for row in table.rows] == ["tokenpilot", "least_request", "cache_aware", "round_robin"]
    assert [row.mark for row in table.rows] == ["best", "reference", "", ""]
    text = drawn(table)
    assert "±" in text
    assert "output tokens only" in " ".join(text.split())
    assert "−13" in text, "a policy that loses shows how much"


def test_all_figures_stand_in_some_table(comparison_maker: Callable[..., Comparison]) -> None:
    result = comparison_maker()
    full = full_table(result)
    assert [row.cells[0] for row in full.rows] == [measure.label for measure in m.MEASURES]
    assert full.columns[2:] == tuple(entry.arm.name for entry in result.ranked())
    titles = " ".join(table.title for table in comparison_tables(result))
    for word in ("Goodput by policy", "Latency", "went wrong", "cost", "By class", "By tenant"):
        assert word in titles


def test_few_seeds_say_so(comparison_maker: Callable[..., Comparison]) -> None:
    few = comparison_maker(seeds=2)
    assert interval_note(few) == "No interval: 2 seeds, and intervals need at least 5."
    assert "no interval" in drawn(headline_table(few))
    assert "No interval: 1 seed," in interval_note(comparison_maker(seeds=1))


def test_markdown_and_terminal_show_hostile_names_as_text() -> None:
    name = "[red]a|b[/red]\n<img src=x>\\"
    table = Table("T", ("Policy", "Goodput"), (Row((name, "1")),), note="n")
    markdown = to_markdown(table)
    row = markdown.splitlines()[4]
    assert row == "| [red]a\\|b[/red] &lt;img src=x>\\\\ | 1 |"
    assert "[red]a|b[/red]" in drawn(table)


def test_markdown_of_several_tables_is_valid(comparison_maker: Callable[..., Comparison]) -> None:
    text = to_markdown(comparison_tables(comparison_maker()))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    for block in text.split("### ")[1:]:
        widths = {line.count("|") for line in block.splitlines() if line.startswith("|")}
        assert len(widths) == 1
    assert any("---:" in line for line in rows)
    assert text.endswith("\n")


def test_a_row_of_the_wrong_width_is_refused() -> None:
    with pytest.raises(ValueError, match="2 cells in a row of 1 columns"):
        Table("T", ("a",), (Row(("1", "2")),))
