"""Short texts of the command line that stand for values: synthetic streams, failures, shares of names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, cast, get_args

from data.errors import SettingError
from data.fleet.types import Fleet
from data.synth.mix import Stream
from data.synth.profile import TraceProfile
from data.synth.profiles import PROFILES
from data.traces.length_classes import LengthClasses
from data.traces.transform import Assignment, Field
from planner.fleet_streams import fleet_streams
from planner.sim.settings import FailureEvent, SiteFailure
from planner.trace_source import SynthTrace

COLUMNS: dict[str, Field] = {"model": "model", "tenant": "tenant", "class": "workload_class", "origin": "origin"}
"""Columns that ``--assign`` fills, by the name they have there."""
Kind = Literal["crash", "slow", "hang"]
SiteKind = Literal["loss", "slow", "link_cut"]


def synth_trace(fleet: Fleet, specs: Sequence[str]) -> SynthTrace:
    """Streams of ``PROFILE:RATE:DURATION[:CLASS]`` texts over the fleet's tenants; all have one duration.

    Raises:
        SettingError: A text is malformed, names no profile or class, or the durations differ.
    """
    streams: list[Stream] = []
    durations: set[float] = set()
    for spec in specs:
        name, rate, duration, *kind = _parts("--synth", spec, 3, 4, "PROFILE:RATE:DURATION[:CLASS]")
        streams += fleet_streams(fleet, _profile(name), _above_zero("--synth", rate), kind[0] if kind else None)
        durations.add(_above_zero("--synth", duration))
    if len(durations) > 1:
        raise SettingError("streams differ in duration", field="--synth", value=sorted(durations), expected="one")
    return SynthTrace(tuple(streams), durations.pop(), "synthetic " + ", ".join(specs))


def failure_event(text: str) -> FailureEvent:
    """A failure from ``KIND:ENDPOINT:AT:DURATION[:FACTOR]``, times in seconds.

    Raises:
        SettingError: The text is malformed or a value is out of its range.
    """
    form = "KIND:ENDPOINT:AT:DURATION[:FACTOR]"
    kind, endpoint, at, duration, *factor = _parts("--failure", text, 4, 5, form)
    if kind not in get_args(Kind):
        raise SettingError("unknown failure", field="--failure", value=kind, expected="crash, slow or hang")
    if not endpoint.isdecimal():
        raise SettingError("not an endpoint", field="--failure", value=endpoint, expected="a row number from 0")
    event = FailureEvent(
        _number("--failure", at), int(endpoint), cast(Kind, kind), _above_zero("--failure", duration)
    )
    if not factor:
        return event
    times = _number("--failure", factor[0])
    if not 1e-3 <= times <= 1e3:
        raise SettingError("factor out of range", field="--failure", value=factor[0], expected="0.001 to 1000")
    return FailureEvent(event.at_s, event.endpoint, event.kind, event.duration_s, times)


def site_failure(text: str) -> SiteFailure:
    """A failure of a site from ``KIND:SITE:AT:DURATION[:FACTOR]``, of a link with ``SITE/PEER``; times in seconds.

    Raises:
        SettingError: The text is malformed or a value is out of its range.
    """
    form = "KIND:SITE[/PEER]:AT:DURATION[:FACTOR]"
    kind, where, at, duration, *factor = _parts("--site-failure", text, 4, 5, form)
    if kind not in get_args(SiteKind):
        raise SettingError(
            "unknown failure", field="--site-failure", value=kind, expected="loss, slow or link_cut"
        )
    site, slash, peer = where.partition("/")
    if (kind == "link_cut") != bool(slash) or not site or site == peer or (slash and not peer):
        expected = "two sites such as A/B" if kind == "link_cut" else "a site"
        raise SettingError("not a place", field="--site-failure", value=where, expected=expected)
    times = _number("--site-failure", factor[0]) if factor else 2.0
    if not 1e-3 <= times <= 1e3:
        raise SettingError(
            "factor out of range", field="--site-failure", value=factor[0], expected="0.001 to 1000"
        )
    moment, seconds = _number("--site-failure", at), _above_zero("--site-failure", duration)
    return SiteFailure(moment, site, cast(SiteKind, kind), seconds, times, peer)


def name_rule(text: str) -> Assignment:
    """Shares of names from ``COLUMN=NAME:WEIGHT,...``; a name without a weight has weight 1.

    Raises:
        SettingError: The text is malformed or names no column.
    """
    column, equals, listed = text.partition("=")
    if not equals or column not in COLUMNS or not listed:
        raise SettingError(
            "not a rule",
            field="--assign",
            value=text,
            expected=f"COLUMN=NAME:WEIGHT,... with {', '.join(COLUMNS)}",
        )
    shares: dict[str, float] = {}
    for part in listed.split(","):
        name, colon, weight = part.rpartition(":") if ":" in part else (part, "", "")
        shares[name] = _number("--assign", weight) if colon else 1.0
    return Assignment(COLUMNS[column], shares, only_blank=True)


def _profile(name: str) -> TraceProfile:
    if name not in PROFILES:
        raise SettingError(
            "unknown profile", field="--synth", value=name, expected="one of " + ", ".join(PROFILES)
        )
    return PROFILES[name]


def length_classes(text: str) -> LengthClasses:
    """Classes by prompt length from ``NAME:TOKENS,...,NAME``: shorter than TOKENS is NAME, the rest is the last.

    Raises:
        SettingError: The text is malformed or the limits do not ascend.
    """
    *limited, last = text.split(",")
    pairs = [part.partition(":") for part in limited]
    if not limited or ":" in last or not all(name and tokens.isdecimal() for name, _, tokens in pairs):
        raise SettingError(
            "not classes by length",
            field="--class-by-length",
            value=text,
            expected="NAME:TOKENS,...,NAME such as interactive:8000,long_context",
        )
    return LengthClasses((*(name for name, _, _ in pairs), last), tuple(int(tokens) for _, _, tokens in pairs))


def _parts(option: str, text: str, least: int, most: int, form: str) -> list[str]:
    parts = text.split(":")
    if not least <= len(parts) <= most:
        raise SettingError("wrong form", field=option, value=text, expected=form)
    return parts


def _number(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise SettingError("not a number", field=option, value=text, expected="a number, 0 or more")
    return value


def _above_zero(option: str, text: str) -> float:
    value = _number(option, text)
    if value == 0:
        raise SettingError("out of range", field=option, value=text, expected="a number above 0")
    return value
