"""One arm of a comparison: a policy with its settings, and the plan and latency model it runs with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from data.errors import SettingError
from router.policies.settings import Setting, settings_from
from router.registry import policy_entry
from router.slomax.registry import MakeFlow, flow_factory


@dataclass(frozen=True)
class Arm:
    """What is varied between the runs of a comparison; everything else stays the same.

    Attributes:
        name: Unique in the comparison; what tables and charts show.
        policy: Registry name of the routing policy.
        settings: Settings of the policy that differ from its defaults.
        predictor_path: Folder of a model store; ``None`` = the physics prior.
        plan_path: Plan whose placement is used; ``None`` = the scenario's.
        drift_guard: The prior answers for groups in which the latency model has drifted during the run.
        flow: Flow control in front of the policy; ``None`` = every request is sent on arrival.
        flow_settings: Its settings that differ from their defaults.
    """

    name: str
    policy: str
    settings: Mapping[str, Setting] = field(default_factory=dict)
    predictor_path: str | None = None
    plan_path: str | None = None
    drift_guard: bool = False
    flow: str | None = None
    flow_settings: Mapping[str, Setting] = field(default_factory=dict)


def parse_arm(text: str, predictor_path: str | None = None, plan_path: str | None = None) -> Arm:
    """An arm from ``policy:key=value:key=value``, with ``+flow:key=value`` behind it for a flow control.

    The settings are optional; the name of the arm is the text itself.

    Raises:
        SettingError: The policy, the flow control or a setting is unknown, or a value is out of its range.
    """
    name = text.strip()
    first, *rest = re.split(r"\+(?=[a-z])", name)
    if len(rest) > 1:
        raise SettingError("more than one flow control", value=name, expected="policy or policy+flow")
    policy, *pairs = first.split(":")
    arm = Arm(name, policy, parse_settings(pairs), predictor_path, plan_path)
    if rest:
        flow, *flow_pairs = rest[0].split(":")
        arm = replace(arm, flow=flow, flow_settings=parse_settings(flow_pairs))
    check_arm(arm)
    return arm


def parse_settings(pairs: Sequence[str]) -> dict[str, Setting]:
    """Settings from ``key=value`` texts: whole numbers, decimals, ``true``/``false``, or text.

    Raises:
        SettingError: A text has no ``=``, or a key stands twice.
    """
    settings: dict[str, Setting] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key = key.strip()
        if not equals or not key:
            raise SettingError("not a setting", value=pair, expected="key=value")
        if key in settings:
            raise SettingError("setting given twice", field=key, value=value)
        settings[key] = _typed(value.strip())
    return settings


def check_arm(arm: Arm) -> None:
    """Raise ``SettingError`` unless the policy and the flow control exist and take the arm's settings."""
    entry = policy_entry(arm.policy)
    settings_from(entry.settings, arm.settings, arm.policy)
    flow_of(arm)


def flow_of(arm: Arm) -> MakeFlow | None:
    """What makes the arm's flow control; ``None`` = it has none.

    Raises:
        SettingError: It is unknown, or does not take the settings.
    """
    return None if arm.flow is None else flow_factory(arm.flow, arm.flow_settings)


def _typed(text: str) -> Setting:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
