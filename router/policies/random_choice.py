"""Random: uniform over the candidates."""

from __future__ import annotations

from data.types import IntArray
from router.policies.base import PolicyBase, PolicyContext, PolicyEntry
from router.policies.settings import NoSettings
from router.types import FleetView, RouteRequest


class RandomChoice(PolicyBase):
    """A uniform, seeded draw."""

    name = "random"

    def __init__(self, settings: NoSettings, context: PolicyContext) -> None:  # noqa: ARG002
        super().__init__(context)

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:  # noqa: ARG002
        """Any candidate, each with the same probability."""
        return self.pick(candidates)


ENTRY = PolicyEntry(
    name=RandomChoice.name,
    summary="Uniform over the candidates.",
    sees="nothing",
    source="common",
    ties="draw",
    ties_note="the rule itself is a draw",
    settings=NoSettings,
    factory=RandomChoice,
)
