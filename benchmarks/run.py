"""Run every benchmark and write ``benchmarks/results/latest.json``.

A benchmark is a module with ``rows(quick: bool) -> list[dict]``. A row has ``id, area, value, unit, reference,
ratio, target, met``; this script adds when and where it was measured. Targets that are missed stand there as
``met: false``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.machine import machine

MODULES = (
    "benchmarks.bench_traces",
    "benchmarks.bench_log",
    "benchmarks.bench_sim",
    "benchmarks.bench_fidelity",
    "benchmarks.bench_decision",
    "benchmarks.bench_scrape",
    "benchmarks.bench_hung_worker",
    "benchmarks.bench_tokenpilot",
    "benchmarks.bench_two_stage",
    "benchmarks.bench_drift",
    "benchmarks.bench_prefix_index",
    "benchmarks.bench_kv_events",
    "benchmarks.bench_router",
    "benchmarks.bench_entry",
    "benchmarks.bench_selection",
    "benchmarks.bench_gateways",
    "benchmarks.bench_slomax",
    "benchmarks.bench_split",
    "benchmarks.bench_sites",
    "benchmarks.bench_feedback",
    "benchmarks.bench_planner_service",
    "benchmarks.bench_placement",
    "benchmarks.bench_moves",
    "benchmarks.bench_newsvendor",
    "benchmarks.bench_fleet",
    "benchmarks.bench_fleet_simulated",
    "benchmarks.bench_capacity",
    "benchmarks.bench_latency_models",
    "benchmarks.bench_fleet_models",
    "benchmarks.bench_training",
    "benchmarks.bench_output_length",
    "benchmarks.bench_forecast",
    "benchmarks.bench_policies",
    "benchmarks.bench_proof",
    "benchmarks.bench_bound",
    "benchmarks.bench_referee",
    "benchmarks.bench_dynamo_selection",
    "benchmarks.bench_value",
    "benchmarks.bench_replay_planner",
)
RESULTS = Path(__file__).parent / "results" / "latest.json"


def collect(modules: tuple[str, ...], quick: bool) -> list[dict[str, Any]]:
    """Rows of all modules, in order, stamped with the time and the machine."""
    rows: list[dict[str, Any]] = []
    for name in modules:
        started = time.perf_counter()
        print(f"== {name}", file=sys.stderr, flush=True)
        found = _in_fresh_process(name, quick)
        stamp = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine()}
        rows.extend({**row, **stamp} for row in found)
        print(f"   {len(found)} rows in {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    return rows


def rows_of(name: str, quick: bool) -> list[dict[str, Any]]:
    """Rows of one module."""
    found: list[dict[str, Any]] = importlib.import_module(name).rows(quick)
    return found


def _in_fresh_process(name: str, quick: bool) -> list[dict[str, Any]]:
    """A process of its own for each benchmark: memory and caches of the one before would be measured with it."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(rows_of, name, quick).result()


def main(argv: list[str] | None = None) -> None:
    """Command line: all benchmarks or the named ones, quick by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="such as bench_sim; none = all")
    parser.add_argument("--full", action="store_true", help="full sizes: an hour rather than minutes")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    modules = tuple(f"benchmarks.{name}" for name in options.names) or MODULES
    rows = collect(modules, quick=not options.full)
    for row in rows:
        mark = {True: "met", False: "MISSED", None: ""}[row.get("met")]
        print(f"{row['id']:<44} {row['value']:>12.4g} {row['unit']:<12} {row.get('target') or '':<18} {mark}")
    kept = []
    if options.out.exists() and options.names:
        ran = {row["id"] for row in rows}
        kept = [row for row in json.loads(options.out.read_text()) if row["id"] not in ran]
    aside = options.out.with_suffix(".tmp")
    aside.write_text(json.dumps(kept + rows, indent=1) + "\n")
    aside.replace(options.out)


if __name__ == "__main__":
    main()
