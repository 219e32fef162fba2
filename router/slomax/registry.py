"""All flow controls by name, with their settings: SLOMax and the rivals it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from data.errors import SettingError
from router.policies.settings import Checked, Setting, settings_from
from router.slomax.budgeted import Budgeted
from router.slomax.context import FlowContext
from router.slomax.corrected import Corrected
from router.slomax.feedback import Feedback
from router.slomax.feedback_settings import FeedbackSettings
from router.slomax.flow_control import SloMax
from router.slomax.rivals.reserved_classes_smg import ReservedClasses, ReservedClassSettings
from router.slomax.rivals.saturation_gate_llmd import SaturationGate, SaturationGateSettings
from router.slomax.rivals.strict_priority import StrictPriority, StrictPrioritySettings
from router.slomax.rivals.token_pools import TokenPools, TokenPoolSettings
from router.slomax.rivals.weighted_deficit_dynamo import WeightedDeficit, WeightedDeficitSettings
from router.slomax.settings import SloMaxSettings
from router.slomax.types import FlowControl


@dataclass(frozen=True, slots=True)
class FlowEntry:
    """One flow control.

    Attributes:
        summary: One line on what it does.
        settings: Its settings class.
        factory: Makes one from a context and such settings.
    """

    summary: str
    settings: type[Checked]
    factory: Callable[[FlowContext, Any], FlowControl]


FLOWS: Mapping[str, FlowEntry] = {
    "slomax": FlowEntry("class queues behind a gate that predicts the targets", SloMaxSettings, SloMax),
    "strict_priority": FlowEntry("tightest class first", StrictPrioritySettings, StrictPriority),
    "weighted_deficit_dynamo": FlowEntry(
        "weighted deficit round robin over class and length", WeightedDeficitSettings, WeightedDeficit
    ),
    "token_pools": FlowEntry("entitlements and debts of tenants", TokenPoolSettings, TokenPools),
    "saturation_gate_llmd": FlowEntry(
        "priority bands behind one saturation of the pool", SaturationGateSettings, SaturationGate
    ),
    "reserved_classes_smg": FlowEntry("concurrency with reserves", ReservedClassSettings, ReservedClasses),
}


@dataclass(frozen=True, slots=True)
class MakeFlow:
    """Makes one flow control with checked settings; picklable, for worker processes.

    ``feedback``: settings of the feedback in front of it; ``None`` = none.
    """

    name: str
    settings: Checked
    feedback: FeedbackSettings | None = None

    def __call__(self, context: FlowContext) -> FlowControl:
        """A new one for a context."""
        flow = FLOWS[self.name].factory(context, self.settings)
        if not isinstance(flow, SloMax):
            flow = Budgeted(context, flow)
        if self.feedback is None:
            return flow
        share = self.settings.budget_share if isinstance(self.settings, SloMaxSettings) else 1.0
        return Corrected(context, flow, Feedback(self.feedback, context.now_s), share)


def flow_factory(name: str, settings: Mapping[str, Setting], feedback: FeedbackSettings | None = None) -> MakeFlow:
    """What makes the flow control ``name`` with these settings, behind a feedback if its settings are given.

    Raises:
        SettingError: The name or a setting is unknown, or a value is out of its range.
    """
    entry = FLOWS.get(name)
    if entry is None:
        raise SettingError("unknown flow control", field="flow", value=name, expected="one of " + ", ".join(FLOWS))
    return MakeFlow(name, settings_from(entry.settings, settings, name), feedback)
