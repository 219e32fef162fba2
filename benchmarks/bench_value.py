"""What TokenFleet is worth on its reference scenario: four sites with it, without it, and with each part out.

The scenario is the demo's: six tenants on ``four-sites``, a hot spell at B. Without TokenFleet: the fleet's own
placement, each request at the nearest permitted site that has its model, least request there, nothing held back.
With it: the placement planned for the demand of another seed, SLOMax under the plan's capacity split, FleetMind's
choice of site, TokenPilot inside the site. All arms meet the same requests, lengths and noise.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.kept_runs import code_digest
from benchmarks.proof.runs import RunFile
from benchmarks.value.runs import Book, scene_at
from benchmarks.value.scene import Scene
from benchmarks.value.tables import Contest, arms_table, group_table, headline_table, planning_table, rows_of
from benchmarks.value.variants import (
    ADDED,
    BASE,
    FLEETMIND,
    FLOW_ADDED,
    PILOT_LOCAL,
    PLANNING,
    SPREAD,
    TAKEN,
    UNLIMITED,
    WHOLE,
    WITHOUT_FLOW,
    Variant,
)
from planner.report.table import Table, print_tables, to_markdown
from planner.run_pool import RunPool

LEVELS: dict[str, tuple[float, float, tuple[Variant, ...], tuple[Variant, ...]]] = {
    "65%": (0.65, 46.0, (BASE, WHOLE, SPREAD, *ADDED, FLOW_ADDED, *TAKEN), PLANNING),
    "85%": (0.85, 34.5, (BASE, WHOLE, SPREAD, *ADDED, UNLIMITED), ()),
}
"""Attainment that sets the load, where its search begins (requests/s), the arms, and those of planning."""
QUICK = Contest("quick", Scene(60.0, 60.0), (BASE, WHOLE, FLEETMIND, PILOT_LOCAL, WITHOUT_FLOW), seeds=(1, 2))
GROUPS = {
    "class": ("interactive", "long_context", "batch"),
    "tenant": ("bank", "clinic", "shop", "games", "studio", "campus"),
}
SHOWN = (BASE, WITHOUT_FLOW, WHOLE, UNLIMITED)
"""Arms whose classes and tenants are shown."""


def rows(quick: bool) -> list[dict[str, Any]]:
    """All rows; ``quick`` takes a minute at the start of an overload, which decides no target.

    Finished runs of the full form are kept in ``out/bench_value`` for this state of the code.
    """
    if not quick:
        with RunPool(1) as pool:
            return measure(book_in(kept_in(), pool), list(LEVELS))[0]
    with tempfile.TemporaryDirectory() as folder, RunPool(1) as pool:
        book = book_in(Path(folder), pool)
        book.run(QUICK.scene, QUICK.variants, QUICK.seeds)
        return [{**row, "target": None, "met": None} for row in rows_of(QUICK, book)]


def kept_in() -> Path:
    """Folder of runs and plans of this state of the code."""
    return Path("out/bench_value") / code_digest()


def book_in(folder: Path, pool: RunPool) -> Book:
    """Runs and plans of a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    return Book(RunFile(folder / "runs.jsonl"), folder / "plans", pool)


def measure(
    book: Book, levels: list[str], keep: Callable[[Variant], bool] = lambda _: True
) -> tuple[list[dict[str, Any]], list[Table]]:
    """Rows and tables of the loads: baseline, whole, whole without SLOMax, and the arms that ``keep`` accepts."""
    found: list[dict[str, Any]] = []
    tables: list[Table] = []
    for name in levels:
        level, start, variants, planning = LEVELS[name]
        scene = scene_at(level, book, start)
        arms = tuple(one for one in variants if one in (BASE, WHOLE, WITHOUT_FLOW) or keep(one))
        contest = Contest(name, scene, arms, tuple(one for one in planning if keep(one)))
        book.run(scene, (*contest.variants, *contest.planning))
        found += rows_of(contest, book)
        tables += [headline_table(contest, book), arms_table(contest, book)]
        tables += [planning_table(contest, book)] if contest.planning else []
        shown = [one for one in SHOWN if one in contest.variants]
        tables += [group_table(contest, book, kind, names, shown) for kind, names in GROUPS.items()]
    return found, tables


def main(argv: list[str] | None = None) -> None:
    """Print tables and rows; ``--markdown FILE`` also writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--level", choices=list(LEVELS), action="append", help="one load; both without it")
    parser.add_argument("--arms", default="", help="only arms whose name holds one of these texts, comma between")
    parser.add_argument("--folder", type=Path, help="of kept runs and plans; else one for this state of the code")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args(argv)
    wanted = [text for text in options.arms.split(",") if text]
    with RunPool(options.workers) as pool:
        book = book_in(options.folder or kept_in(), pool)
        found, tables = measure(
            book,
            options.level or list(LEVELS),
            lambda one: not wanted or any(text in one.id for text in wanted),
        )
    print_tables(tables)
    for row in found:
        print(row)
    if options.markdown is not None:
        options.markdown.write_text(to_markdown(tables))


if __name__ == "__main__":
    main()
