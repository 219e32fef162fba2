"""What policies chose on ``mixed-pool`` in our simulator, scored again by Dynamo's: do they keep their order?

Every policy's choices (which request, to which endpoint, when) are served again by Dynamo's offline replay
(1.6.1), one worker for each endpoint with the step times of its GPU; see ``docs/referee.md``.
``TOKENFLEET_DYNAMO_PYTHON`` names an interpreter that has it, and the public traces must be on the machine;
without either there are no rows. ``python -m benchmarks.bench_referee`` runs everything (three traces, three
settings, five seeds) and prints the tables; finished runs are kept in ``--runs``. The quick form is the first
requests of one trace with one seed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.proof.referee.contest import ARMS, FORMS, OURS, Curves, Referee
from benchmarks.proof.referee.first_requests import FirstRequests
from benchmarks.proof.referee.replay import dynamo_python
from benchmarks.proof.referee.tables import Judged, Scores, arm_table, order_table, pair_table
from benchmarks.proof.runs import Cell, RunFile
from benchmarks.proof.scenarios import reported
from benchmarks.slomax_scenario import folder
from planner.intervals import Estimate, estimate

Row = dict[str, Any]
AREA = "referee"
FLEET = "mixed-pool"
TRACES = ("conversation", "synthetic", "azure-code")
SEEDS = (1, 2, 3, 4, 5)
CURVES: tuple[Curves, ...] = ("catalog", "common")
QUICK_TRACE, QUICK_REQUESTS, QUICK_SPEED = "conversation", 2000, 1.3


def rows(quick: bool) -> list[Row]:
    """Orders and Goodput of all arms in both simulators."""
    python = dynamo_python()
    if python is None or folder() is None:
        return []
    with tempfile.TemporaryDirectory() as name:
        referee = Referee(python, RunFile(Path(name) / "runs.jsonl"), _note)
        found = _quick(referee) if quick else everything(referee, TRACES)
        return [row for judged in found for row in judged_rows(judged)]


def everything(referee: Referee, traces: Sequence[str]) -> list[Judged]:
    """All traces and settings at the load where least-request meets 85 % in our simulator."""
    found = []
    for curves in CURVES:
        for trace in traces:
            cell = referee.cell(Cell(FLEET, trace, reported(FLEET, trace), 1.0), curves)
            found += judged(referee, cell, curves, SEEDS)
    return found


def judged(referee: Referee, cell: Cell, curves: Curves, seeds: Sequence[int]) -> list[Judged]:
    """One cell: what our simulator says and what each form of the other does."""
    by_seed = [{arm.name: referee.score(cell, curves, arm, seed) for arm in ARMS} for seed in seeds]

    def figures_of(simulator: str) -> Scores:
        return {arm.name: [found[arm.name][simulator] for found in by_seed] for arm in ARMS}

    return [Judged(cell, f"{curves}/{form}", figures_of(OURS), figures_of(form)) for form in FORMS[curves]]


def judged_rows(one: Judged) -> Iterator[Row]:
    """The order, then every arm."""
    name = f"{one.cell.trace}/{one.setting}"
    pairs, contradicted = one.pairs, sum(pair.contradicted for pair in one.pairs)
    several = one.seeds > 1
    yield _row(
        f"{name}/contradicted",
        float(contradicted),
        "pairs",
        target="0" if several else None,
        met=contradicted == 0 if several else None,
        pairs=len(pairs),
        decided=sum(pair.decided for pair in pairs),
        swapped=sum(pair.swapped for pair in pairs),
    )
    yield _estimated(f"{name}/tau", one.tau, "tau")
    for side in ("ours", "theirs"):
        yield _estimated(f"{name}/lead_{side}", one.lead(side == "ours"), "relative")
    for arm in one.order:
        ours, theirs = (estimate(one.values(arm, mine)).mean for mine in (True, False))
        yield _row(f"{name}/{arm}", theirs, "tokens/s", reference=round(ours, 2), ratio=round(theirs / ours, 4))


def _quick(referee: Referee) -> list[Judged]:
    scenario = reported(FLEET, QUICK_TRACE)
    shaped = replace(scenario.trace, source=FirstRequests(scenario.trace.source, QUICK_REQUESTS))
    cell = Cell(FLEET, f"{QUICK_TRACE}-{QUICK_REQUESTS}", replace(scenario, trace=shaped), QUICK_SPEED)
    return judged(referee, cell, "catalog", SEEDS[:1])


def _estimated(name: str, found: Estimate, unit: str) -> Row:
    return _row(name, found.mean, unit, interval=[found.low, found.high])


def _row(name: str, value: float, unit: str, **more: object) -> Row:
    empty: Row = {"reference": None, "ratio": None, "target": None, "met": None}
    return {"id": f"{AREA}/{name}", "area": AREA, "value": round(value, 4), "unit": unit, **empty, **more}


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Run everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    kept = "finished runs of one state of the code; name another file after a change"
    parser.add_argument("--runs", type=Path, default=Path("out/referee-runs.jsonl"), help=kept)
    parser.add_argument("--trace", action="append", choices=TRACES)
    options = parser.parse_args()
    python = dynamo_python()
    if python is None:
        parser.error("TOKENFLEET_DYNAMO_PYTHON does not name an interpreter with ai-dynamo 1.6.1")
    options.runs.parent.mkdir(parents=True, exist_ok=True)
    found = everything(Referee(python, RunFile(options.runs), _note), options.trace or TRACES)
    print(order_table(found))
    for one in found:
        print(arm_table(one))
        print(pair_table(one))


if __name__ == "__main__":
    main()
