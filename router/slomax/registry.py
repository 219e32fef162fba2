"""All flow controls by name, with their settings: SLOMax and the rivals it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from data.errors import SettingError
from router.policies.settings import Checked, Setting, settings_from
from router.slomax.context import FlowContext
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
    """Makes one flow control with checked settings; picklable, for worker processes."""

    name: str
    settings: Checked

    def __call__(self, context: FlowContext) -> FlowControl:
        """A new one for a context."""
        return FLOWS[self.name].factory(context, self.settings)


def flow_factory(name: str, settings: Mapping[str, Setting]) -> MakeFlow:
    """What makes the flow control ``name`` with these settings.

    Raises:
        SettingError: The name or a setting is unknown, or a value is out of its range.
    """
    entry = FLOWS.get(name)
    if entry is None:
        raise SettingError("unknown flow control", field="flow", value=name, expected="one of " + ", ".join(FLOWS))
    return MakeFlow(name, settings_from(entry.settings, settings, name))
