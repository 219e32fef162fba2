"""What the referee found, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.proof.contest import OURS as OUR_POLICY
from benchmarks.proof.referee.figures import Figures
from benchmarks.proof.referee.order import Pair, pairs, ranked, tau
from benchmarks.proof.runs import Cell
from benchmarks.proof.tables import percent
from planner.intervals import Estimate, estimate, paired_relative_difference

Scores = Mapping[str, Sequence[Figures]]
"""Figures of each arm, one for each seed."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One cell in both simulators.

    Attributes:
        cell: The cell.
        setting: Step times that routers go by, and what the other simulator is told of them.
        ours, theirs: Figures of each arm and seed in either simulator.
    """

    cell: Cell
    setting: str
    ours: Scores
    theirs: Scores

    @property
    def seeds(self) -> int:
        """Runs of each arm."""
        return len(next(iter(self.ours.values())))

    @property
    def pairs(self) -> list[Pair]:
        """Every pair of arms by Goodput."""
        return pairs(self._goodput(True), self._goodput(False))

    @property
    def tau(self) -> Estimate:
        """Kendall's tau of the two orders by Goodput."""
        return tau(self._goodput(True), self._goodput(False))

    @property
    def order(self) -> list[str]:
        """Arms by our Goodput."""
        return ranked(self._goodput(True))

    def rank(self, arm: str, ours: bool) -> int:
        """Place of an arm in one simulator, 1 = most Goodput."""
        return ranked(self._goodput(ours)).index(arm) + 1

    def values(self, arm: str, ours: bool, name: str = "goodput") -> list[float]:
        """A figure of an arm, seed by seed."""
        return [one[name] for one in (self.ours if ours else self.theirs)[arm]]

    def lead(self, ours: bool) -> Estimate:
        """TokenPilot's Goodput over that of the best other arm of that simulator, less 1."""
        best = next(arm for arm in ranked(self._goodput(ours)) if arm != OUR_POLICY)
        return paired_relative_difference(self.values(OUR_POLICY, ours), self.values(best, ours))

    def _goodput(self, ours: bool) -> dict[str, list[float]]:
        return {arm: self.values(arm, ours) for arm in self.ours}


def order_table(found: Sequence[Judged]) -> str:
    """One line for each cell and setting."""
    lines = [
        "| Trace | Setting | Speed | Kendall's tau | Pairs | Both sure | Swapped | Both sure and swapped |"
        " TokenPilot's lead, ours | Dynamo's |",
        "| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    for one in found:
        known = one.pairs
        sure, swapped = sum(pair.decided for pair in known), sum(pair.swapped for pair in known)
        counts = (len(known), sure, swapped, sum(pair.contradicted for pair in known))
        lines.append(
            f"| {one.cell.trace} | {one.setting} | {one.cell.speed:.3g} | {plain(one.tau)} |"
            f" {' | '.join(map(str, counts))} | {percent(one.lead(True))} | {percent(one.lead(False))} |"
        )
    return "\n".join(lines) + "\n"


def arm_table(one: Judged) -> str:
    """Every arm of a cell in both simulators, by our Goodput."""
    lines = [
        f"### {one.cell.trace}, {one.setting}",
        "",
        "| Arm | Goodput, ours | Dynamo's | Place | Attained | TTFT P50, s | TTFT P95, s | TPOT P95, ms | Hits |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for arm in one.order:
        ours, theirs = (estimate(one.values(arm, mine)) for mine in (True, False))
        cells = (
            plain(ours, 0),
            plain(theirs, 0),
            f"{one.rank(arm, True)} / {one.rank(arm, False)}",
            _both(one, arm, "attained", 100, 1) + " %",
            _both(one, arm, "ttft_p50", 1, 3),
            _both(one, arm, "ttft_p95", 1, 2),
            _both(one, arm, "tpot_p95", 1000, 0),
            _both(one, arm, "hit_rate", 100, 1) + " %",
        )
        lines.append(f"| `{arm}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def pair_table(one: Judged) -> str:
    """The pairs that the two simulators put in different order; differences in tokens/s, seed by seed."""
    swapped = [pair for pair in one.pairs if pair.swapped]
    if not swapped:
        return "No pair swaps.\n"
    lines = ["| First | Second | First less second, ours | Dynamo's |", "| --- | --- | --- | --- |"]
    lines += [f"| `{p.first}` | `{p.second}` | {plain(p.ours, 1)} | {plain(p.theirs, 1)} |" for p in swapped]
    return "\n".join(lines) + "\n"


def plain(found: Estimate, digits: int = 2) -> str:
    """A mean and half its interval."""
    mean = f"{found.mean:,.{digits}f}"
    return mean if found.half_width is None else f"{mean} ± {found.half_width:,.{digits}f}"


def _both(one: Judged, arm: str, name: str, factor: float, digits: int) -> str:
    """Means of a figure in both simulators."""
    means = (factor * estimate(one.values(arm, mine, name)).mean for mine in (True, False))
    return " / ".join(f"{mean:,.{digits}f}" for mean in means)
