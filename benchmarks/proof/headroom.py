"""How far the arms of a cell are from the bound that no policy exceeds, and what lead it leaves over a peer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.proof.runs import Cell, RunFile
from planner.arm import Arm
from planner.bound import GoodputBound, scenario_bound
from planner.intervals import Estimate, estimate, paired_relative_difference
from planner.measures import GOODPUT, GOODPUT_PER_GPU_HOUR, GPU_HOURS


@dataclass(frozen=True, slots=True)
class Headroom:
    """Bounds of a cell, seed by seed.

    Attributes:
        cell: Scenario at its speed.
        bounds: By seed.
    """

    cell: Cell
    bounds: Mapping[int, GoodputBound]

    def share_of_bound(self, arm: Arm, runs: RunFile) -> Estimate:
        """Goodput of an arm over the bound's, each over the length of its own run; the runs must be there."""
        theirs = runs.values(self.cell, arm, self.bounds, GOODPUT)
        pairs = zip(theirs, self.bounds.values(), strict=True)
        return estimate([goodput / bound.goodput_tokens_per_s for goodput, bound in pairs])

    def share_of_tokens(self, arm: Arm, runs: RunFile) -> Estimate:
        """Good tokens of an arm over the bound's, in other words Goodput over the length of the same run."""
        hours = runs.values(self.cell, arm, self.bounds, GPU_HOURS)
        per_hour = runs.values(self.cell, arm, self.bounds, GOODPUT_PER_GPU_HOUR)
        triples = zip(hours, per_hour, self.bounds.values(), strict=True)
        return estimate([time * tokens / bound.good_tokens for time, tokens, bound in triples])

    def most_lead(self, over: Arm, runs: RunFile) -> Estimate:
        """Bound over the Goodput of ``over``, less 1: no policy can lead it by more."""
        theirs = runs.values(self.cell, over, self.bounds, GOODPUT)
        return paired_relative_difference([one.goodput_tokens_per_s for one in self.bounds.values()], theirs)

    @property
    def of_offered(self) -> Estimate:
        """Good tokens that the bound allows, over those offered."""
        return estimate([one.share_of_offered for one in self.bounds.values()])


def headroom(cell: Cell, seeds: Sequence[int]) -> Headroom:
    """Compute the bounds of a cell: seconds for each seed.

    Raises:
        TraceError: The trace is closed-loop: its arrivals depend on the policy.
    """
    scenario = cell.scenario.at_speed(cell.speed)
    return Headroom(cell, {seed: scenario_bound(scenario, seed) for seed in seeds})
