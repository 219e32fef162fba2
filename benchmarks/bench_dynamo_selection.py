"""Dynamo's real selection service in our simulator, beside our statement of its rule and TokenPilot.

``TOKENFLEET_DYNAMO_PYTHON`` names the interpreter with ``ai-dynamo-runtime`` 1.6.1 and ``pyzmq``. All arms of a
cell see the same arrivals, at the load where least-request meets 85 % of what is offered. ``python -m
benchmarks.bench_dynamo_selection`` runs everything, about an hour and a half of one core; finished runs are kept
in ``--runs``. The quick form is the start of one trace on one fleet.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.proof.contest import SEEDS, level_cell
from benchmarks.proof.dynamo_arm.child import PROGRAM, interpreter
from benchmarks.proof.dynamo_arm.scenario import with_dynamo
from benchmarks.proof.runs import Cell, Figures, RunFile
from benchmarks.proof.scenarios import reported
from benchmarks.proof.tables import percent
from data.traces.options import TraceOptions
from planner.arm import Arm
from planner.intervals import Estimate, estimate
from planner.measures import ATTAINMENT_OFFERED, GOODPUT, HIT_RATE, MEASURES, TTFT_P50, TTFT_P95
from planner.run_pool import RunPool
from planner.scenario import Scenario
from planner.sim.result import RunResult
from planner.trace_source import FileTrace

Row = dict[str, Any]
FLEETS = ("one-pool", "mixed-pool")
TRACES = ("conversation", "azure-code")
SCALES = (1.0, 4.0, 16.0, 32.0)
QUICK_ROWS, QUICK_SCALE = 1000, 4.0
COMPARED = ("likewise", "likewise_in_their_blocks", "ties", "excess_blocks", "seen_ms", "chosen_ms")
"""Figures of a run of the service beyond those of every run."""
SHOWN = (GOODPUT, ATTAINMENT_OFFERED, TTFT_P50, TTFT_P95, HIT_RATE)
PILOT = Arm("tokenpilot", "tokenpilot")
LEAST = Arm("least_request", "least_request")


def service(scale: float) -> Arm:
    """Dynamo's own code."""
    return Arm(f"service, scale {scale:g}", "dynamo_selection", {"scale": scale})


def our_rule(scale: float) -> Arm:
    """Our statement of it."""
    return Arm(f"our rule, scale {scale:g}", "kv_cost_dynamo", {"scale": scale})


def arms_of(scales: Sequence[float]) -> list[Arm]:
    """Every arm of a cell."""
    return [*(make(scale) for scale in scales for make in (service, our_rule)), PILOT, LEAST]


def figures_of(run: RunResult) -> Figures:
    """All measures of a run, and how the service's choices compare with our rule's."""
    measured = {measure.key: float(measure.of(run)) for measure in MEASURES}
    return {**measured, **{key: run.extra[key] for key in COMPARED if key in run.extra}}


def run_cell(cell: Cell, arms: Sequence[Arm], runs: RunFile, pool: RunPool) -> None:
    """Run what is not there yet."""
    missing = [(arm, seed) for arm in arms for seed in SEEDS if cell.key(arm, seed) not in runs]

    def done(arm: Arm, seed: int, run: RunResult) -> None:
        runs.keep(cell.key(arm, seed), figures_of(run))
        note(f"{cell.fleet}, {cell.trace}: {arm.name}, seed {seed}, {run.wall_s:.0f} s")

    if missing:
        pool.run(cell.scenario.at_speed(cell.speed).run, missing, done)


def compared(cell: Cell, scale: float, runs: RunFile, key: str) -> Estimate:
    """A figure of the comparison with our rule, over the seeds."""
    return estimate([runs[cell.key(service(scale), seed)][key] for seed in SEEDS])


def best_scale(cell: Cell, scales: Sequence[float], runs: RunFile) -> float:
    """The scale at which the service has most Goodput in this very cell: the reader's choice for it."""
    return max(scales, key=lambda scale: runs.mean(cell, service(scale), SEEDS, GOODPUT).mean)


def rows_of(cell: Cell, scales: Sequence[float], runs: RunFile) -> list[Row]:
    """Agreement and difference at each scale, and TokenPilot over the service at its best."""
    head = f"dynamo_selection/{cell.fleet}/{cell.trace}"
    made = []
    for scale in scales:
        for key in ("likewise", "likewise_in_their_blocks"):
            share = compared(cell, scale, runs, key)
            made.append(row(f"{head}/{key}/{scale:g}", "share of choices", share, "the service's own choice"))
        gain = runs.gain(cell, our_rule(scale), service(scale), SEEDS, GOODPUT)
        made.append(row(f"{head}/our_rule/{scale:g}", "relative", gain, service(scale).name))
    best = best_scale(cell, scales, runs)
    gain = runs.gain(cell, PILOT, service(best), SEEDS, GOODPUT)
    return [*made, row(f"{head}/tokenpilot", "relative", gain, service(best).name)]


def row(name: str, unit: str, found: Estimate, reference: str) -> Row:
    """One row; nothing here has a target: it tells whether the peer was stated fairly."""
    ratio = 1 + found.mean if unit == "relative" else found.mean
    return {
        "id": name,
        "area": "goodput",
        "value": round(found.mean, 4),
        "unit": unit,
        "reference": reference,
        "ratio": round(ratio, 4),
        "target": "-",
        "met": None,
        "seeds": found.count,
        "interval": [found.low, found.high],
    }


def table(cell: Cell, scales: Sequence[float], runs: RunFile) -> str:
    """A cell as Markdown."""
    lines = [
        f"### {cell.fleet}, {cell.trace}, least request at {cell.level} (speed {cell.speed:.3g})",
        "",
        "| Scale | Service | Our rule | Our rule over service | Likewise | In its blocks | Ties |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    shown = ("likewise", "likewise_in_their_blocks", "ties")
    for scale in scales:
        theirs, ours = service(scale), our_rule(scale)
        lines.append(
            f"| {scale:g} | {runs.mean(cell, theirs, SEEDS, GOODPUT).mean:,.0f} |"
            f" {runs.mean(cell, ours, SEEDS, GOODPUT).mean:,.0f} |"
            f" {percent(runs.gain(cell, ours, theirs, SEEDS, GOODPUT))} |"
            f" {' | '.join(f'{compared(cell, scale, runs, key).mean:.2%}' for key in shown)} |"
        )
    lines += ["", "| Arm | Goodput | TokenPilot over it | Attained | TTFT P50 | TTFT P95 | Hit rate |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for arm in arms_of(scales):
        of = {m: runs.mean(cell, arm, SEEDS, m).mean for m in SHOWN}
        gain = percent(runs.gain(cell, PILOT, arm, SEEDS, GOODPUT))
        lines.append(
            f"| {arm.name} | {of[GOODPUT]:,.0f} | {gain} | {of[ATTAINMENT_OFFERED]:.1%} |"
            f" {of[TTFT_P50]:.3g} s | {of[TTFT_P95]:.3g} s | {of[HIT_RATE]:.1%} |"
        )
    times = [compared(cell, scale, runs, key).mean for scale in scales for key in ("seen_ms", "chosen_ms")]
    waited, chose = sum(times[::2]) / len(scales), sum(times[1::2]) / len(scales)
    return "\n".join([*lines, "", f"A decision: {waited:.2f} ms until seen, {chose:.2f} ms to book."]) + "\n"


def rows(quick: bool) -> list[Row]:
    """Rows of all cells, or of the start of one; a single row if the service is not here."""
    python = interpreter()
    if python is None:
        why = f"{PROGRAM} is not set"
        return [row("dynamo_selection", "-", Estimate(0.0, None, 0), why)]
    with tempfile.TemporaryDirectory() as folder, RunPool(1) as pool:
        runs = RunFile(Path(folder) / "runs.jsonl")
        if not quick:
            return [each for cell in cells(FLEETS, TRACES, SCALES, python, runs, pool)
                    for each in rows_of(cell, SCALES, runs)]  # fmt: skip
        scenario = start_of(reported("mixed-pool", "conversation"), QUICK_ROWS)
        cell = level_cell("mixed-pool", "conversation", with_dynamo(scenario, python), 0.85, runs, pool)
        run_cell(cell, arms_of([QUICK_SCALE]), runs, pool)
        return rows_of(cell, [QUICK_SCALE], runs)


def cells(
    fleets: Sequence[str],
    traces: Sequence[str],
    scales: Sequence[float],
    python: str,
    runs: RunFile,
    pool: RunPool,
) -> list[Cell]:
    """Find the load of each cell and run its arms."""
    made = []
    for trace in traces:
        for fleet in fleets:
            scenario = with_dynamo(reported(fleet, trace), python)
            cell = level_cell(fleet, trace, scenario, 0.85, runs, pool)
            run_cell(cell, arms_of(scales), runs, pool)
            made.append(cell)
    return made


def start_of(scenario: Scenario, count: int) -> Scenario:
    """The first rows of a trace file alone."""
    source = scenario.trace.source
    assert isinstance(source, FileTrace)
    cut = replace(source, options=TraceOptions(max_rows=count))
    return replace(scenario, trace=replace(scenario.trace, source=cut))


def repeated(cell: Cell, scale: float, count: int) -> str:
    """One seed again and again: what the ties of the service, which no seed settles, are worth."""
    run = cell.scenario.at_speed(cell.speed).run
    found = [run(service(scale), SEEDS[0]).total.goodput_tokens_per_s for _ in range(count)]
    head = f"{cell.fleet}, {cell.trace}, scale {scale:g}, {count} runs of one seed"
    return f"{head}: {min(found):,.0f} to {max(found):,.0f}"


def other_blocks(cell: Cell, scale: float, block_tokens: int, runs: RunFile, pool: RunPool) -> str:
    """What the size of the service's blocks is worth: its Goodput over that with the default size."""
    settings = {"scale": scale, "block_tokens": block_tokens}
    arm = Arm(f"service, scale {scale:g}, blocks of {block_tokens}", "dynamo_selection", settings)
    run_cell(cell, [arm], runs, pool)
    gain = runs.gain(cell, arm, service(scale), SEEDS, GOODPUT)
    return f"{cell.fleet}, {cell.trace}, {arm.name}: {percent(gain)} over {service(scale).name}"


def note(text: str) -> None:
    """Progress, to standard error."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Run and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("out/dynamo-selection-runs.jsonl"))
    parser.add_argument("--fleet", action="append", choices=FLEETS)
    parser.add_argument("--trace", action="append", choices=TRACES)
    parser.add_argument("--scale", action="append", type=float)
    parser.add_argument("--block-tokens", action="append", type=int, help="further block sizes of the service")
    parser.add_argument("--repeat", type=int, default=0, help="runs of one seed of the service, in each cell")
    options = parser.parse_args()
    python = interpreter()
    if python is None or not os.access(python, os.X_OK):
        parser.error(f"{PROGRAM} names no interpreter")
    options.runs.parent.mkdir(parents=True, exist_ok=True)
    runs, scales = RunFile(options.runs), options.scale or SCALES
    with RunPool(1) as pool:
        for cell in cells(options.fleet or FLEETS, options.trace or TRACES, scales, python, runs, pool):
            print(table(cell, scales, runs))
            best = best_scale(cell, scales, runs)
            for size in options.block_tokens or ():
                print(other_blocks(cell, best, size, runs, pool))
            if options.repeat:
                print(repeated(cell, best, options.repeat))


if __name__ == "__main__":
    main()
