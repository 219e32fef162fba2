"""TokenPilot against every peer on public traces, each arm tuned on other traffic with the same budget of trials.

``python -m benchmarks.bench_proof`` runs everything, which takes hours of two cores; finished runs are kept in
``--runs``, so it may be stopped and started again. ``--fleet`` and ``--trace`` choose a part. The quick form, as
part of ``make bench``, is one cell with a few arms at their tuned settings.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.proof.contest import LEVELS, SEEDS, CellResult, contestants, level_cell, run_cells, untuned
from benchmarks.proof.headroom import Headroom, headroom
from benchmarks.proof.record import write_record
from benchmarks.proof.runs import RunFile
from benchmarks.proof.scenarios import FLEETS, reported, trace_names
from benchmarks.proof.tables import best_peer, cell_table, lead, summary
from planner.arm import Arm
from planner.run_pool import RunPool, default_workers

Row = dict[str, Any]
TARGETS = {"one-pool": 0.05, "mixed-pool": 0.15}
LEVEL = "85%"
QUICK_ARMS = (
    Arm("least_request", "least_request"),
    Arm("kv_cost_dynamo:scale=16.0", "kv_cost_dynamo", {"scale": 16.0}),
    Arm("mooncake_no_transfer", "mooncake_no_transfer"),
    Arm("tokenpilot", "tokenpilot"),
)


def row(result: CellResult, runs: RunFile) -> Row:
    """TokenPilot's lead in one cell; the middle level carries the target."""
    cell, found = result.cell, lead(result, runs)
    target = TARGETS.get(cell.fleet) if cell.level == LEVEL else None
    met = None if target is None else bool(found.mean >= target and found.low is not None and found.low > 0)
    return {
        "id": f"proof/{cell.fleet}/{cell.trace}/{cell.level}",
        "area": "goodput",
        "value": round(found.mean, 4),
        "unit": "relative",
        "reference": best_peer(result, runs).name,
        "ratio": round(1 + found.mean, 4),
        "target": None if target is None else f">= {target:+.0%}, interval above 0",
        "met": met,
        "seeds": len(SEEDS),
        "interval": [found.low, found.high],
    }


def rows(quick: bool) -> list[Row]:
    """Leads of all cells, or of one."""
    with tempfile.TemporaryDirectory() as folder, RunPool(default_workers(10)) as pool:
        runs = RunFile(Path(folder) / "runs.jsonl")
        if not quick:
            return [row(result, runs) for result in everything(FLEETS, (), runs, pool, Path(folder))]
        cell = level_cell("mixed-pool", "azure-code", reported("mixed-pool", "azure-code"), 0.85, runs, pool)
        runs.run(cell, [(arm, seed) for arm in QUICK_ARMS for seed in SEEDS], pool)
        return [row(CellResult(cell, QUICK_ARMS), runs)]


def everything(
    fleets: tuple[str, ...],
    traces: tuple[str, ...],
    runs: RunFile,
    pool: RunPool,
    models: Path,
    levels: tuple[float, ...] = LEVELS,
    tune: bool = True,
) -> list[CellResult]:
    """Tune, or take the strong policies as they come, and run; ``traces`` empty = all."""
    results = []
    for fleet in fleets:
        known = contestants(fleet, runs, pool, models, note) if tune else untuned()
        chosen = [name for name in trace_names(fleet) if not traces or name in traces]
        results += run_cells(fleet, chosen, known, runs, pool, note, levels)
    return results


def bounds(result: CellResult) -> Headroom | None:
    """What no policy can exceed in a cell: at the middle load, and not where arrivals depend on the policy."""
    cell = result.cell
    if cell.trace == "agentic" or cell.level != LEVEL:
        return None
    note(f"{cell.fleet}, {cell.trace}: bounds")
    return headroom(cell, SEEDS)


def note(text: str) -> None:
    """Progress, to standard error."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Run and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("out/proof-runs.jsonl"))
    parser.add_argument("--fleet", action="append", choices=FLEETS)
    parser.add_argument("--trace", action="append")
    parser.add_argument("--level", action="append", type=float, help="attainment that sets the load, such as 0.85")
    parser.add_argument("--untuned", action="store_true", help="no trials: the strong policies as they come")
    parser.add_argument("--record", type=Path, help="write every cell, arm and seed to this JSON file")
    parser.add_argument("--workers", type=int, default=default_workers(10))
    options = parser.parse_args()
    options.runs.parent.mkdir(parents=True, exist_ok=True)
    runs = RunFile(options.runs)
    with RunPool(options.workers) as pool:
        levels, models = tuple(options.level or LEVELS), options.runs.parent / "models"
        results = everything(
            tuple(options.fleet or FLEETS), tuple(options.trace or ()), runs, pool, models, levels
        )
    if options.record is not None:
        write_record(options.record, results, runs)
    print(summary(results, runs, [bounds(result) for result in results]))
    for result in results:
        print(cell_table(result, runs))


if __name__ == "__main__":
    main()
