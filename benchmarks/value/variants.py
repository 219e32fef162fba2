"""The arms: the same fleet without TokenFleet, with each part added, whole, and with each part taken out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from planner.arm import Arm, parse_arm

LOCAL = "@local_only"
FLOW = "+slomax+feedback"
SITES = "@fleetmind"
PLANNED = "planned"


@dataclass(frozen=True, slots=True)
class Variant:
    """One arm.

    Attributes:
        id: Name in tables.
        text: ``policy+flow@sites``.
        placement: Name of its placement; empty = the fleet's own.
        split: Whether the plan's capacity split is in force.
        budgets: Whether the tenants have their budgets.
    """

    id: str
    text: str
    placement: str = ""
    split: bool = False
    budgets: bool = True

    def arm(self, plan: Path | None) -> Arm:
        """The arm on its placement."""
        return replace(parse_arm(self.text, plan_path=None if plan is None else str(plan)), name=self.id)


BASE = Variant("least request, local only", "least_request" + LOCAL)
SPREAD = Variant("least request, all sites", "least_request")
WHOLE = Variant("whole", "tokenpilot" + FLOW + SITES, PLANNED, split=True)
FLEETMIND = Variant("+ FleetMind, placement and site choice", "least_request" + SITES, PLANNED)
PILOT_LOCAL = Variant("+ TokenPilot", "tokenpilot" + LOCAL)
WITHOUT_FLOW = Variant("TokenPilot and FleetMind", "tokenpilot" + SITES, PLANNED)
UNLIMITED = replace(WHOLE, id="whole, tenants without budgets", budgets=False)
ADDED = (
    PILOT_LOCAL,
    Variant("+ FleetMind, site choice alone", "least_request" + SITES),
    Variant("+ FleetMind, placement alone", "least_request" + LOCAL, PLANNED),
    FLEETMIND,
    WITHOUT_FLOW,
)
"""One part on top of the baseline, and two together."""
FLOW_ADDED = Variant("+ SLOMax", "least_request" + FLOW + LOCAL)
TAKEN = (
    UNLIMITED,
    replace(WHOLE, id="no feedback", text="tokenpilot+slomax" + SITES),
    replace(WHOLE, id="neither capacity split nor feedback", text="tokenpilot+slomax" + SITES, split=False),
    replace(WHOLE, id="no TokenPilot: least request", text="least_request" + FLOW + SITES),
)
"""One part out of the whole; the split is the difference between the second and the third."""
PLANNING = (
    replace(WITHOUT_FLOW, id="no site stage: all sites at once", text="tokenpilot"),
    replace(WITHOUT_FLOW, id="no spill: the plan's shares alone", text="tokenpilot@shares_only"),
    replace(WITHOUT_FLOW, id="no spill: local only", text="tokenpilot" + LOCAL),
    replace(WITHOUT_FLOW, id="the fleet as it stands", placement=""),
    replace(WITHOUT_FLOW, id="capacities measured by load tests", placement="measured"),
    replace(WITHOUT_FLOW, id="constructive greedy", placement="greedy"),
    replace(WITHOUT_FLOW, id="priority and regret", placement="regret"),
    replace(WITHOUT_FLOW, id="plan carried out from what stands", placement="carried out"),
    replace(WITHOUT_FLOW, id="a plan for each part of the run", placement="in steps"),
    replace(WITHOUT_FLOW, id="the same, no prewarming", placement="in steps, no prewarm"),
)
"""FleetMind's parts out, and other placements, under TokenPilot without a flow control."""
