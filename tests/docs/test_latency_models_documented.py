"""Features and settings of the latency models and TokenPilot stand in their pages, and the examples run."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from models.features import UNITS
from models.gbm import BoostSettings
from models.physics import PriorSettings
from models.signals import SignalSettings
from router.tokenpilot import TokenPilotSettings

DOCS = Path(__file__).resolve().parents[2] / "docs"
MODELS = (DOCS / "latency-models.md").read_text()
PILOT = (DOCS / "tokenpilot.md").read_text()


@pytest.mark.parametrize("name", UNITS)
def test_every_feature_stands_with_its_unit(name: str) -> None:
    assert f"| `{name}` | {UNITS[name]} |" in MODELS


@pytest.mark.parametrize("settings", [BoostSettings, PriorSettings, SignalSettings])
def test_every_setting_is_named(settings: type) -> None:
    for field in dataclasses.fields(settings):
        assert f"`{field.name}`" in MODELS


def test_defaults_of_the_boosting_are_told() -> None:
    for field in dataclasses.fields(BoostSettings):
        assert re.search(rf"`{field.name}`\s+{field.default:g}\b", MODELS), field.name


def test_settings_of_tokenpilot_stand_with_their_defaults() -> None:
    for field in dataclasses.fields(TokenPilotSettings):
        default = str(field.default).lower() if isinstance(field.default, bool) else f"{field.default:g}"
        assert f"| `{field.name}` | {default} |" in PILOT


@pytest.mark.parametrize("page", [MODELS, PILOT], ids=["latency-models", "tokenpilot"])
def test_examples_run(page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "example", "exec"), {})
