"""The contest's tables: every arm of a cell, and TokenPilot against the best tuned peer of each cell."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.proof.contest import OURS, SEEDS, CellResult
from benchmarks.proof.headroom import Headroom
from benchmarks.proof.runs import RunFile
from planner.arm import Arm
from planner.intervals import Estimate
from planner.measures import ATTAINMENT_OFFERED, GOODPUT, HIT_RATE, TTFT_P50, TTFT_P95

REFERENCE = Arm("least_request", "least_request")


def best_peer(result: CellResult, runs: RunFile) -> Arm:
    """The peer with most Goodput, whatever its settings."""
    peers = [arm for arm in result.arms if arm.policy != OURS]
    return max(peers, key=lambda arm: runs.mean(result.cell, arm, SEEDS, GOODPUT).mean)


def ours(result: CellResult) -> Arm:
    """TokenPilot with the settings that its own trials chose."""
    tuned = [arm for arm in result.arms if arm.policy == OURS and arm.name.startswith(f"{OURS}:")]
    return tuned[0] if tuned else Arm(OURS, OURS)


def lead(result: CellResult, runs: RunFile) -> Estimate:
    """Goodput of tuned TokenPilot over the best tuned peer, less 1."""
    return runs.gain(result.cell, ours(result), best_peer(result, runs), SEEDS, GOODPUT)


def summary(results: Sequence[CellResult], runs: RunFile, rooms: Sequence[Headroom | None]) -> str:
    """One line a cell, as Markdown; ``rooms`` are the bounds of the cells, where there are any."""
    lines = [
        "| Fleet | Trace | Level | Speed | Best peer | Its Goodput | TokenPilot | Lead | Most any lead |"
        " TokenPilot over bound |",
        "| --- | --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for result, room in zip(results, rooms, strict=True):
        cell, peer = result.cell, best_peer(result, runs)
        theirs = runs.mean(cell, peer, SEEDS, GOODPUT).mean
        mine = runs.mean(cell, ours(result), SEEDS, GOODPUT).mean
        most = "–" if room is None else f"{room.most_lead(peer, runs).mean:+.1%}"
        share = "–" if room is None else f"{room.share_of_bound(ours(result), runs).mean:.3f}"
        lines.append(
            f"| {cell.fleet} | {cell.trace} | {cell.level} | {cell.speed:.3g} | `{peer.name}` | {theirs:,.0f} |"
            f" {mine:,.0f} | {percent(lead(result, runs))} | {most} | {share} |"
        )
    return "\n".join(lines) + "\n"


def cell_table(result: CellResult, runs: RunFile) -> str:
    """Every arm of a cell, best first; losing arms stay."""
    cell = result.cell
    lines = [
        f"### {cell.fleet}, {cell.trace}, least request at {cell.level}",
        "",
        "| Arm | Goodput | Against least request | Attained, offered | TTFT P50 | TTFT P95 | Hit rate |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    ranked = sorted(result.arms, key=lambda arm: -runs.mean(cell, arm, SEEDS, GOODPUT).mean)
    for arm in ranked:
        mean = {
            m.key: runs.mean(cell, arm, SEEDS, m).mean
            for m in (GOODPUT, ATTAINMENT_OFFERED, TTFT_P50, TTFT_P95, HIT_RATE)
        }
        gain = percent(runs.gain(cell, arm, REFERENCE, SEEDS, GOODPUT))
        lines.append(
            f"| `{arm.name}` | {mean[GOODPUT.key]:,.0f} | {gain} | {mean[ATTAINMENT_OFFERED.key]:.1%} |"
            f" {mean[TTFT_P50.key]:.3g} s | {mean[TTFT_P95.key]:.3g} s | {mean[HIT_RATE.key]:.1%} |"
        )
    return "\n".join(lines) + "\n"


def percent(found: Estimate) -> str:
    """A relative gain with its interval."""
    if found.low is None or found.high is None:
        return f"{found.mean:+.1%}"
    return f"{found.mean:+.1%} ({found.low:+.1%} to {found.high:+.1%})"
