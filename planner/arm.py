"""One arm of a comparison: a policy with its settings, and the plan and latency model it runs with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from data.errors import SettingError
from router.policies.settings import Setting, settings_from
from router.registry import policy_entry
from router.sites.registry import MakeSiteRule, site_rule_factory
from router.slomax.feedback_settings import FeedbackSettings
from router.slomax.registry import MakeFlow, flow_factory

FEEDBACK = "feedback"
"""Stands behind a flow control that is corrected by what became of its requests."""


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
        feedback: Settings, as far as they differ from their defaults, of the feedback in front of the flow
            control; ``None`` = none.
        sites: Rule that chooses the site before the policy chooses there; ``None`` = the policy sees all sites.
        sites_settings: Its settings that differ from their defaults.
    """

    name: str
    policy: str
    settings: Mapping[str, Setting] = field(default_factory=dict)
    predictor_path: str | None = None
    plan_path: str | None = None
    drift_guard: bool = False
    flow: str | None = None
    flow_settings: Mapping[str, Setting] = field(default_factory=dict)
    feedback: Mapping[str, Setting] | None = None
    sites: str | None = None
    sites_settings: Mapping[str, Setting] = field(default_factory=dict)


def parse_arm(text: str, predictor_path: str | None = None, plan_path: str | None = None) -> Arm:
    """An arm from ``policy:key=value:key=value``, with ``+flow:key=value`` behind it for a flow control.

    ``+feedback:key=value`` behind that puts the feedback in front of the flow control.

    ``@rule:key=value`` at the end puts a choice of site between the flow control and the policy.

    The settings are optional; the name of the arm is the text itself.

    Raises:
        SettingError: The policy, the flow control or a setting is unknown, or a value is out of its range.
    """
    name = text.strip()
    chain, *rules = re.split(r"@(?=[a-z])", name)
    if len(rules) > 1:
        raise SettingError("more than one choice of site", value=name, expected="policy+flow@sites")
    first, *rest = re.split(r"\+(?=[a-z])", chain)
    policy, *pairs = first.split(":")
    arm = Arm(name, policy, parse_settings(pairs), predictor_path, plan_path)
    if rules:
        sites, *site_pairs = rules[0].split(":")
        arm = replace(arm, sites=sites, sites_settings=parse_settings(site_pairs))
    if len(rest) == 2 and rest[1].partition(":")[0] == FEEDBACK:
        arm = replace(arm, feedback=parse_settings(rest.pop().split(":")[1:]))
    if len(rest) > 1:
        expected = "policy, policy+flow or policy+flow+feedback"
        raise SettingError("more than one flow control", value=name, expected=expected)
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
    """Raise ``SettingError`` unless policy, flow control and site rule exist and take the arm's settings."""
    entry = policy_entry(arm.policy)
    settings_from(entry.settings, arm.settings, arm.policy)
    flow_of(arm)
    sites_of(arm)


def flow_of(arm: Arm) -> MakeFlow | None:
    """What makes the arm's flow control; ``None`` = it has none.

    Raises:
        SettingError: It is unknown, or does not take the settings.
    """
    if arm.flow is None:
        return None
    feedback = None if arm.feedback is None else settings_from(FeedbackSettings, arm.feedback, FEEDBACK)
    return flow_factory(arm.flow, arm.flow_settings, feedback)


def sites_of(arm: Arm) -> MakeSiteRule | None:
    """What makes the arm's rule of site choice; ``None`` = it has none.

    Raises:
        SettingError: It is unknown, or does not take the settings.
    """
    return None if arm.sites is None else site_rule_factory(arm.sites, arm.sites_settings)


def _typed(text: str) -> Setting:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
