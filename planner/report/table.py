"""A table as a value, and how it is written: on a terminal, as Markdown, and (by the template) as HTML."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

Mark = Literal["", "best", "reference"]


@dataclass(frozen=True, slots=True)
class Row:
    """Cells of one row, as text; ``mark`` says what the row is among the others."""

    cells: tuple[str, ...]
    mark: Mark = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table. The first ``left`` columns hold text, the others figures set to the right.

    Every row has one cell a column.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""
    left: int = 1

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(f"{self.title}: {len(row.cells)} cells in a row of {len(self.columns)} columns")


def to_rich(table: Table) -> RichTable:
    """For a terminal. Text from outside (names of tenants, policies) is never read as markup."""
    drawn = RichTable(
        title=Text(table.title), title_justify="left", caption=Text(table.note) if table.note else None,
        caption_justify="left",
    )  # fmt: skip
    for index, label in enumerate(table.columns):
        if index == 0:
            drawn.add_column(Text(label), no_wrap=True, overflow="ellipsis")
        else:
            drawn.add_column(Text(label), justify="left" if index < table.left else "right", overflow="fold")
    for row in table.rows:
        style = {"best": "bold green", "reference": "dim", "": ""}[row.mark]
        drawn.add_row(*(Text(cell) for cell in row.cells), style=style)
    return drawn


def print_tables(tables: Sequence[Table]) -> None:
    """Write tables to stdout, as wide as the terminal, or 120 columns where there is none."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    for table in tables:
        console.print(to_rich(table))


def to_markdown(tables: Table | Sequence[Table]) -> str:
    """As Markdown: a heading, the table and its note for each; ends with a newline."""
    many = [tables] if isinstance(tables, Table) else list(tables)
    return "\n".join(_markdown(table) for table in many)


def _markdown(table: Table) -> str:
    rule = ["---" if index < table.left else "---:" for index in range(len(table.columns))]
    lines = [f"### {_inert(table.title)}", "", _line(table.columns), _line(rule)]
    lines += [_line(row.cells) for row in table.rows]
    if table.note:
        lines += ["", _inert(table.note)]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_inert(cell) for cell in cells) + " |"


def _inert(text: str) -> str:
    """Text that Markdown shows as it is: no cell break, no raw HTML, one line."""
    flat = " ".join(text.split())
    return flat.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
