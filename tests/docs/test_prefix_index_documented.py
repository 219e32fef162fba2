"""The page on the prefix index: its examples run, and every setting, counter and outcome stands in it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import get_args

import pytest

from router.kv_events.apply import FeedSettings
from router.kv_events.counters import EventCounters
from router.kv_events.subscriber import EventSource, SubscriberSettings
from router.prefix.index import PrefixIndexSettings
from router.prefix.snapshot_file import Refusal
from router.prompts.hash_parity import Parity

PAGE = (Path(__file__).parents[2] / "docs" / "prefix-index.md").read_text()


def test_the_examples_run() -> None:
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(block, names)


@pytest.mark.parametrize(
    "kind", [PrefixIndexSettings, FeedSettings, SubscriberSettings, EventSource, EventCounters]
)
def test_every_field_is_named(kind: type) -> None:
    missing = [field.name for field in dataclasses.fields(kind) if f"`{field.name}`" not in PAGE]
    assert missing == []


def test_every_outcome_of_a_parity_check_is_named() -> None:
    assert [
        parity.value for parity in Parity if parity is not Parity.UNKNOWN and f"`{parity.value}`" not in PAGE
    ] == []


def test_every_reason_to_start_cold_is_a_word() -> None:
    assert all(re.fullmatch("[a-z_]+", reason) for reason in get_args(Refusal))
