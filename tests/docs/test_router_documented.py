"""``docs/router.md`` names every refusal with its status, every setting with its default, and every call."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from data.types import RefusalReason
from planner.cli.serve import router
from router.pb.v1 import router_pb2 as pb
from router.serving.service_settings import Knobs
from router.slomax.refusals import STATUS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "router.md").read_text()
GROUPS = ("server", "limits", "leases", "predictor", "prefix_index", "index_snapshot", "log")


@pytest.mark.parametrize("reason", list(RefusalReason))
def test_every_reason_stands_there_with_its_status(reason: RefusalReason) -> None:
    assert f"| `{reason.value}` | {STATUS[reason]} |" in PAGE


def test_no_other_reason_is_promised() -> None:
    table = PAGE.split("## Refusals")[1].split("## Settings")[0]
    assert set(re.findall(r"^\| `(\w+)` \| \d+ \|", table, re.M)) == {reason.value for reason in RefusalReason}


@pytest.mark.parametrize("group", GROUPS)
def test_every_setting_stands_there_with_its_default(group: str) -> None:
    settings = getattr(Knobs(), group)
    for item in dataclasses.fields(settings):
        value = getattr(settings, item.name)
        shown = f"{value:,}" if isinstance(value, int) and value >= 10_000 else f"{value:g}"
        assert f"| `{group}.{item.name}` | {shown} |" in PAGE


def test_every_option_of_the_command_stands_there() -> None:
    for option in router.params:
        assert f"`{option.opts[0]}" in PAGE, option.opts


def test_every_call_stands_there() -> None:
    for method in pb.DESCRIPTOR.services_by_name["Router"].methods:
        assert f"`{method.name}`" in PAGE
