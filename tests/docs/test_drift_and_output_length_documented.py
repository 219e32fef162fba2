"""Settings of drift and output length stand in their page with their defaults, and the examples run."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from models.drift import DriftSettings
from models.output_length import LengthSettings

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "drift-and-output-length.md").read_text()


@pytest.mark.parametrize("settings", [DriftSettings, LengthSettings])
def test_every_setting_stands_with_its_default(settings: type) -> None:
    for field in dataclasses.fields(settings):
        shown = f"{field.default:.10g}" if isinstance(field.default, int | float) else str(field.default)
        rows = [
            line for line in PAGE.splitlines() if line.startswith("|") and f"`{field.name}`" in line.split("|")[1]
        ]
        assert len(rows) == 1, field.name
        assert rows[0].split("|")[2].strip() == shown, field.name


def test_the_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    for example in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(example, "drift-and-output-length.md", "exec"), {})
    source, lengths = capsys.readouterr().out.splitlines()
    assert source == "prior False"
    assert lengths.startswith("[")
