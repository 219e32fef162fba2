"""Power of two choices, as sglang's router 0.3.2 does it."""

from __future__ import annotations

from dataclasses import dataclass

from data.types import IntArray
from router.policies.base import PolicyBase, PolicyContext, PolicyEntry
from router.policies.settings import Checked, flag
from router.types import FleetView, RouteRequest


@dataclass(frozen=True, slots=True)
class PowerOfTwoSettings(Checked):
    """Settings of power of two.

    Attributes:
        use_reports: Compare the reported token use where both have a report; ``False`` always compares requests
            in flight.
    """

    use_reports: bool = flag(True)


class PowerOfTwo(PolicyBase):
    """The better of two distinct random candidates; equal ones go to the first drawn."""

    name = "power_of_two"

    def __init__(self, settings: PowerOfTwoSettings, context: PolicyContext) -> None:
        super().__init__(context)
        self._use_reports = settings.use_reports

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:  # noqa: ARG002
        """Draw two, compare, keep the less loaded."""
        n = len(candidates)
        if n == 1:
            return int(candidates[0])
        i = self.draw(n)
        j = self.draw(n - 1)
        first, second = int(candidates[i]), int(candidates[j + (j >= i)])
        table = view.endpoints
        if self._use_reports:
            used_first = table.kv_use[first] * table.kv_capacity_tokens[first]
            used_second = table.kv_use[second] * table.kv_capacity_tokens[second]
            # A missing report is NaN, and NaN differs from itself.
            if used_first == used_first and used_second == used_second:
                return second if used_second < used_first else first
        return second if table.inflight[second] < table.inflight[first] else first


ENTRY = PolicyEntry(
    name=PowerOfTwo.name,
    summary="Two random candidates; the one with fewer reported tokens in use, else fewer requests in flight.",
    sees="last reported token use, own in-flight counts",
    source="sglang router 0.3.2",
    ties="draw",
    ties_note="the first of the two drawn wins",
    settings=PowerOfTwoSettings,
    factory=PowerOfTwo,
    grid={"use_reports": (True, False)},
)
