"""Round robin: the candidates in turn."""

from __future__ import annotations

from dataclasses import dataclass

from data.types import IntArray
from router.policies.base import PolicyBase, PolicyContext, PolicyEntry
from router.policies.settings import Checked, flag
from router.types import FleetView, RouteRequest


@dataclass(frozen=True, slots=True)
class RoundRobinSettings(Checked):
    """Settings of round robin.

    Attributes:
        shared_counter: One counter for all models of the process instead of one a model.
    """

    shared_counter: bool = flag(False)


class RoundRobin(PolicyBase):
    """``candidates[counter mod n]``; the counter moves with every decision."""

    name = "round_robin"

    def __init__(self, settings: RoundRobinSettings, context: PolicyContext) -> None:
        super().__init__(context)
        self._shared = settings.shared_counter
        self._counters: dict[str, int] = {}

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:  # noqa: ARG002
        """The next candidate in turn."""
        key = "" if self._shared else request.model
        turn = self._counters.get(key, 0)
        self._counters[key] = turn + 1
        return int(candidates[turn % len(candidates)])


ENTRY = PolicyEntry(
    name=RoundRobin.name,
    summary="The candidates in turn, one counter a model.",
    sees="nothing",
    source="common; production-stack shares one counter between models",
    ties="rotating",
    ties_note="the rule itself takes turns",
    settings=RoundRobinSettings,
    factory=RoundRobin,
    grid={"shared_counter": (False, True)},
)
