"""Whether two simulators put the same policies in the same order.

The correlation of two orders is Kendall's tau-b (Kendall, *Rank Correlation Methods*): pairs in the same order
less pairs in the other, over all pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from planner.intervals import Estimate, estimate, paired_difference

Values = Mapping[str, Sequence[float]]
"""A figure for each arm and seed; index ``i`` is the same seed in all arms and in both simulators."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two arms, and what either simulator says of their difference, seed by seed.

    Attributes:
        first, second: Names of the arms.
        ours, theirs: ``first`` less ``second`` in either simulator.
    """

    first: str
    second: str
    ours: Estimate
    theirs: Estimate

    @property
    def swapped(self) -> bool:
        """The two simulators put the pair in different order."""
        return self.ours.mean * self.theirs.mean < 0

    @property
    def decided(self) -> bool:
        """Both simulators put the pair in an order that their intervals bear out."""
        return self.ours.excludes_zero and self.theirs.excludes_zero

    @property
    def contradicted(self) -> bool:
        """Both are sure, and of opposite orders."""
        return self.decided and self.swapped


def pairs(ours: Values, theirs: Values) -> list[Pair]:
    """Every pair of arms."""
    return [
        Pair(
            first,
            second,
            paired_difference(ours[first], ours[second]),
            paired_difference(theirs[first], theirs[second]),
        )
        for first, second in combinations(ours, 2)
    ]


def tau(ours: Values, theirs: Values) -> Estimate:
    """Kendall's tau of the two orders of each seed: mean over the seeds with its interval."""
    from scipy.stats import kendalltau

    arms = list(ours)
    seeds = len(ours[arms[0]])
    found = [
        float(kendalltau([ours[arm][seed] for arm in arms], [theirs[arm][seed] for arm in arms]).statistic)
        for seed in range(seeds)
    ]
    return estimate(found)


def ranked(values: Values) -> list[str]:
    """Arms by their mean, highest first."""
    return sorted(values, key=lambda arm: -sum(values[arm]) / len(values[arm]))
