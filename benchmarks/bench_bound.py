"""Goodput of TokenPilot and of two peers over the bound that no routing policy exceeds.

``python -m benchmarks.bench_bound`` measures public traces on one GPU type and on three at the load where
least-request meets the targets of 85 %, or of the share ``--level``; finished runs are kept in ``--runs``. The
quick form is one cell.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.proof.contest import SEEDS, level_cell
from benchmarks.proof.headroom import Headroom, headroom
from benchmarks.proof.runs import RunFile
from benchmarks.proof.scenarios import reported
from benchmarks.proof.tables import percent
from planner.arm import Arm
from planner.measures import GOODPUT
from planner.run_pool import RunPool, default_workers

Row = dict[str, Any]
FLEETS = ("one-pool", "mixed-pool")
TRACES = ("conversation", "synthetic", "azure-code", "azure-conv")
OURS = Arm("tokenpilot", "tokenpilot")
PEERS = (
    Arm("least_request", "least_request"),
    Arm("kv_cost_dynamo:scale=16.0", "kv_cost_dynamo", {"scale": 16.0}),
)
TARGET = 0.90
LEVEL = 0.85
"""Attainment of least-request at which the target holds."""
QUICK = ("mixed-pool", "synthetic")


def cells(
    fleets: Sequence[str], traces: Sequence[str], runs: RunFile, pool: RunPool, level: float = LEVEL
) -> list[Headroom]:
    """Run every arm of every cell and bound it."""
    found = []
    for fleet in fleets:
        for trace in traces:
            cell = level_cell(fleet, trace, reported(fleet, trace), level, runs, pool)
            runs.run(cell, [(arm, seed) for arm in (OURS, *PEERS) for seed in SEEDS], pool)
            found.append(headroom(cell, SEEDS))
            print(f"{fleet}, {trace}: speed {cell.speed:.3g}", file=sys.stderr, flush=True)
    return found


def best_peer(room: Headroom, runs: RunFile) -> Arm:
    """The peer with most Goodput."""
    return max(PEERS, key=lambda arm: runs.mean(room.cell, arm, SEEDS, GOODPUT).mean)


def row(room: Headroom, runs: RunFile) -> Row:
    """TokenPilot over the bound in one cell."""
    found, peer = room.share_of_bound(OURS, runs), best_peer(room, runs)
    return {
        "id": f"bound/{room.cell.fleet}/{room.cell.trace}/{room.cell.level}",
        "area": "goodput",
        "value": round(found.mean, 4),
        "unit": "share of the bound",
        "reference": peer.name,
        "ratio": round(room.share_of_bound(peer, runs).mean, 4),
        "of_tokens": round(room.share_of_tokens(OURS, runs).mean, 4),
        "most_lead": round(room.most_lead(peer, runs).mean, 4),
        "target": f">= {TARGET}",
        "met": bool(found.mean >= TARGET),
        "seeds": len(SEEDS),
        "interval": [found.low, found.high],
    }


def rows(quick: bool) -> list[Row]:
    """Shares of the bound, in all cells or in one."""
    with tempfile.TemporaryDirectory() as folder, RunPool(default_workers(10)) as pool:
        runs = RunFile(Path(folder) / "runs.jsonl")
        fleets, traces = ((QUICK[0],), (QUICK[1],)) if quick else (FLEETS, TRACES)
        return [row(room, runs) for room in cells(fleets, traces, runs, pool)]


def table(rooms: Sequence[Headroom], runs: RunFile) -> str:
    """One line a cell, as Markdown."""
    lines = [
        "| Fleet | Trace | Speed | Bound, of offered | TokenPilot, good tokens | Goodput | Best peer | Good tokens"
        " | Goodput | Most lead over it |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    for room in rooms:
        cell, peer = room.cell, best_peer(room, runs)
        shares = [
            f"{room.share_of_tokens(arm, runs).mean:.1%} | {room.share_of_bound(arm, runs).mean:.1%}"
            for arm in (OURS, peer)
        ]
        lines.append(
            f"| {cell.fleet} | {cell.trace} | {cell.speed:.3g} | {room.of_offered.mean:.1%} | {shares[0]} |"
            f" `{peer.name}` | {shares[1]} | {percent(room.most_lead(peer, runs))} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("out/bound-runs.jsonl"))
    parser.add_argument("--fleet", action="append", choices=FLEETS)
    parser.add_argument("--trace", action="append", choices=TRACES)
    parser.add_argument("--level", type=float, default=LEVEL)
    parser.add_argument("--workers", type=int, default=default_workers(10))
    options = parser.parse_args()
    options.runs.parent.mkdir(parents=True, exist_ok=True)
    runs = RunFile(options.runs)
    with RunPool(options.workers) as pool:
        rooms = cells(options.fleet or FLEETS, options.trace or TRACES, runs, pool, options.level)
    print(table(rooms, runs))


if __name__ == "__main__":
    main()
