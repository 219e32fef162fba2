"""Forecasters and settings of the demand forecast stand in its page, and the example runs."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from models.demand.boosted import BoostedSettings
from models.demand.catalogue import MIXES, forecasters
from models.demand.outages import OutageSettings
from models.demand.settings import ForecastSettings

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "demand-forecast.md").read_text()


SHORT_TERM = forecasters(ForecastSettings(short_term=True))


@pytest.mark.parametrize("name", [one.name for one in (*forecasters(ForecastSettings()), *SHORT_TERM, *MIXES)])
def test_every_forecaster_is_told(name: str) -> None:
    assert f"| `{name}` |" in PAGE


@pytest.mark.parametrize("settings", [ForecastSettings, OutageSettings])
def test_settings_stand_with_their_defaults(settings: type) -> None:
    for field in dataclasses.fields(settings):
        default = field.default
        told = ", ".join(f"{one:g}" for one in default) if isinstance(default, tuple) else f"{default:.6g}"
        assert f"| `{field.name}` | {told} |" in PAGE, field.name


def test_size_of_the_forests_is_told() -> None:
    for field in dataclasses.fields(BoostedSettings):
        if field.name not in ("seed", "threads"):
            assert re.search(rf"`{field.name}`\s+{field.default:g}\b", PAGE), field.name


def test_the_example_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "example", "exec"), {})
