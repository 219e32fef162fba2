"""The registry and the checked settings of policies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from data.errors import SettingError
from router.endpoints import EndpointTable
from router.policies.base import PolicyEntry
from router.policies.settings import (
    Checked,
    above,
    at_least,
    between,
    flag,
    one_of,
    settings_from,
    whole,
)
from router.registry import POLICIES, make_policy, policy_entry

ENTRIES = pytest.mark.parametrize("entry", POLICIES.values(), ids=list(POLICIES))


@dataclasses.dataclass(frozen=True, slots=True)
class Every(Checked):
    """One setting of each kind."""

    least: float = at_least(0, 1.0)
    share: float = between(0, 1, 0.5)
    over: float = above(0, 2.0)
    count: int = whole(1, 3)
    word: str = one_of("a", "b")
    on: bool = flag(False)


def test_given_values_replace_defaults() -> None:
    assert settings_from(Every, {}, "p") == Every()
    assert settings_from(Every, {"count": 7, "word": "b", "on": True, "least": 0}, "p") == Every(
        least=0, count=7, word="b", on=True
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"least": -1.0}, "least: setting out of range (got -1.0); expected a number, 0 or more"),
        ({"least": float("inf")}, "expected a number, 0 or more"),
        ({"least": float("nan")}, "expected a number, 0 or more"),
        ({"least": "1"}, "expected a number, 0 or more"),
        ({"least": True}, "expected a number, 0 or more"),
        ({"share": 1.01}, "expected a number from 0 to 1"),
        ({"over": 0.0}, "expected a number above 0"),
        ({"over": float("inf")}, "expected a number above 0"),
        ({"count": 2.5}, "expected a whole number, 1 or more"),
        ({"count": 0}, "expected a whole number, 1 or more"),
        ({"word": "c"}, "expected one of a, b"),
        ({"on": 1}, "expected true or false"),
        ({"lest": 1.0}, "p: lest: unknown setting (got 1.0); expected one of least, share, over, count, word, on"),
    ],
)
def test_wrong_settings_say_what_is_right(given: Mapping[str, Any], message: str) -> None:
    with pytest.raises(SettingError) as caught:
        settings_from(Every, given, "p")
    assert message in str(caught.value)


def test_unknown_policies_and_settings_are_errors(make_table: Callable[..., EndpointTable]) -> None:
    table = make_table(2)
    with pytest.raises(SettingError, match="expected one of round_robin"):
        make_policy("fastest", {}, table, 0)
    with pytest.raises(SettingError, match="expected no settings"):
        make_policy("random", {"scale": 2.0}, table, 0)
    with pytest.raises(SettingError, match="kv_cost_dynamo: scal: unknown setting"):
        make_policy("kv_cost_dynamo", {"scal": 2.0}, table, 0)
    assert policy_entry("random").name == "random"


@ENTRIES
def test_an_entry_is_complete(entry: PolicyEntry) -> None:
    assert POLICIES[entry.name] is entry
    assert entry.summary.endswith(".")
    assert entry.sees
    assert entry.source
    assert entry.ties == "random" or entry.ties_note, "anything but a random tie needs its reason"
    for each in dataclasses.fields(entry.settings):
        assert f"{each.name}" in (entry.settings.__doc__ or "") + (entry.settings.__mro__[1].__doc__ or "")


@ENTRIES
def test_every_value_of_the_tuning_grid_is_legal(
    entry: PolicyEntry, make_table: Callable[..., EndpointTable]
) -> None:
    for name, values in entry.grid.items():
        for value in values:
            assert make_policy(entry.name, {name: value}, make_table(2), 0).name == entry.name
        default = getattr(entry.settings(), name)
        assert default in values, f"the grid of {name} holds the default"
