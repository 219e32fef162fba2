"""All rules of site choice by name, with their settings: FleetMind and the rivals it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from data.errors import SettingError
from router.policies.settings import Checked, NoSettings, Setting, settings_from
from router.sites.base import SiteContext
from router.sites.fleetmind import FleetMind
from router.sites.rivals.gorgo import Gorgo, GorgoSettings
from router.sites.rivals.local_only import LocalOnly
from router.sites.rivals.shares_only import SharesOnly
from router.sites.rivals.skywalker import Skywalker
from router.sites.settings import FleetMindSettings
from router.sites.types import SiteRule


@dataclass(frozen=True, slots=True)
class SiteRuleEntry:
    """One rule.

    Attributes:
        summary: One line on what it does.
        settings: Its settings class.
        factory: Makes one from such settings and a context.
    """

    summary: str
    settings: type[Checked]
    factory: Callable[[Any, SiteContext], SiteRule]


SITE_RULES: Mapping[str, SiteRuleEntry] = {
    "fleetmind": SiteRuleEntry(
        "least cost in seconds, home while it is nearly as good", FleetMindSettings, FleetMind
    ),
    "local_only": SiteRuleEntry("always the nearest permitted site", NoSettings, LocalOnly),
    "gorgo": SiteRuleEntry("least round trip + queue + own prefill", GorgoSettings, Gorgo),
    "skywalker": SiteRuleEntry("home while a replica is free, else most free replicas", NoSettings, Skywalker),
    "shares_only": SiteRuleEntry("the plan's traffic shares alone", NoSettings, SharesOnly),
}
"""Every rule. A new one is a file and a line here."""


@dataclass(frozen=True, slots=True)
class MakeSiteRule:
    """Makes one rule with checked settings; picklable, for worker processes."""

    name: str
    settings: Checked

    def __call__(self, context: SiteContext) -> SiteRule:
        """A new one for a context."""
        return SITE_RULES[self.name].factory(self.settings, context)


def site_rule_factory(name: str, settings: Mapping[str, Setting]) -> MakeSiteRule:
    """What makes the rule ``name`` with these settings.

    Raises:
        SettingError: The name or a setting is unknown, or a value is out of its range.
    """
    entry = SITE_RULES.get(name)
    if entry is None:
        raise SettingError(
            "unknown rule of site choice", field="sites", value=name, expected="one of " + ", ".join(SITE_RULES)
        )
    return MakeSiteRule(name, settings_from(entry.settings, settings, name))
