"""Every option of a running router with its value and where that came from: default, settings file, or flag."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from router.policies.settings import settings_from
from router.registry import policy_entry
from router.serving.service_settings import ServiceSettings

Source = Literal["default", "file", "flag"]
Plain = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """One option as it counts."""

    name: str
    value: Plain
    source: Source


def effective_settings(settings: ServiceSettings) -> list[EffectiveSetting]:
    """All options, in the order of their definition. Files stand as paths; their content is never part of this.

    Raises:
        SettingError: An unknown policy, or a wrong setting of it.
    """
    given = settings.given
    found = [
        EffectiveSetting(name, value, "flag" if name in given.flags else "default")
        for name, value in _leaves(settings, "")
        if name.partition(".")[0] not in ("knobs", "given")
    ]
    if given.file is not None:
        found.append(EffectiveSetting("settings", str(given.file), "flag"))
    found += [
        EffectiveSetting(name, value, "file" if name in given.file_keys else "default")
        for name, value in _leaves(settings.knobs, "")
    ]
    flow = settings.make_flow()
    if flow is not None:
        found += [
            EffectiveSetting(f"flow.{name}", value, "flag" if name in settings.flow_settings else "default")
            for name, value in _leaves(flow.settings, "")
        ]
    sites = settings.make_sites()
    if sites is not None:
        found += [
            EffectiveSetting(f"sites.{name}", value, "flag" if name in settings.sites_settings else "default")
            for name, value in _leaves(sites.settings, "")
        ]
    policy = settings_from(policy_entry(settings.policy).settings, settings.policy_settings, settings.policy)
    found += [
        EffectiveSetting(f"policy.{name}", value, "flag" if name in settings.policy_settings else "default")
        for name, value in _leaves(policy, "")
    ]
    return found


def _leaves(value: object, name: str) -> Iterator[tuple[str, Plain]]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for item in dataclasses.fields(value):
            yield from _leaves(getattr(value, item.name), f"{name}.{item.name}" if name else item.name)
    elif isinstance(value, Path):
        yield name, str(value)
    elif value is None or isinstance(value, str | int | float | bool):
        yield name, value
