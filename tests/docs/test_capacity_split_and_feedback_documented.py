"""The pages on the capacity split and the feedback state every setting as it is, and their examples run."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from router.slomax.corrections import Corrections
from router.slomax.feedback_settings import FeedbackSettings
from solver.capacity_problem import CapacitySettings

DOCS = Path(__file__).resolve().parents[2] / "docs"
SPLIT = (DOCS / "capacity-split.md").read_text()
FEEDBACK = (DOCS / "feedback.md").read_text()


@pytest.mark.parametrize("field", dataclasses.fields(FeedbackSettings), ids=lambda field: field.name)
def test_every_knob_of_the_feedback_stands_there(field: dataclasses.Field[object]) -> None:
    start = f"| `{field.name}` | {field.default:g} | {field.metadata['expected']} |"
    assert sum(line.startswith(start) for line in FEEDBACK.splitlines()) == 1


@pytest.mark.parametrize("field", dataclasses.fields(Corrections), ids=lambda field: field.name)
def test_every_correction_stands_there(field: dataclasses.Field[object]) -> None:
    assert f"\n| `{field.name}` | " in FEEDBACK


@pytest.mark.parametrize("field", dataclasses.fields(CapacitySettings), ids=lambda field: field.name)
def test_every_setting_of_the_split_stands_there(field: dataclasses.Field[object]) -> None:
    value = field.default
    told = f"({', '.join(f'{one:g}' for one in value)})" if isinstance(value, tuple) else f"{value:g}"
    assert f"\n| `{field.name}` | {told} | " in SPLIT


@pytest.mark.parametrize("page", ["capacity-split.md", "feedback.md"])
def test_the_examples_run(page: str) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    exec(compile(example, f"docs/{page}", "exec"), {})  # our own pages
