"""One arm of a comparison: a policy with its settings, and the plan and latency model it runs with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from data.errors import SettingError
from router.policies.settings import Setting, settings_from
from router.registry import policy_entry


@dataclass(frozen=True)
class Arm:
    """What is varied between the runs of a comparison; everything else stays the same.

    Attributes:
        name: Unique in the comparison; what tables and charts show.
        policy: Registry name of the routing policy.
        settings: Settings of the policy that differ from its defaults.
        predictor_path: Folder of a model store; ``None`` = the physics prior.
        plan_path: Plan whose placement is used; ``None`` = the scenario's.
    """

    name: str
    policy: str
    settings: Mapping[str, Setting] = field(default_factory=dict)
    predictor_path: str | None = None
    plan_path: str | None = None


def parse_arm(text: str, predictor_path: str | None = None, plan_path: str | None = None) -> Arm:
    """An arm from ``policy`` or ``policy:key=value:key=value``; its name is the text itself.

    Raises:
        SettingError: The policy or a setting is unknown, or a value is out of its range.
    """
    policy, *pairs = text.strip().split(":")
    arm = Arm(text.strip(), policy, parse_settings(pairs), predictor_path, plan_path)
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
    """Raise ``SettingError`` unless the policy exists and takes the arm's settings."""
    entry = policy_entry(arm.policy)
    settings_from(entry.settings, arm.settings, arm.policy)


def _typed(text: str) -> Setting:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
