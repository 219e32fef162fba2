"""Rules of the house that a machine can check on the whole tree."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("data", "models", "solver", "router", "planner")
SOURCES = sorted(
    path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if path.parent != ROOT / "router/pb/v1"
)
"""Without the generated gRPC code."""
TEXTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "benchmarks/**/*.py", "tests/**/*.py", "examples/**/*")
    for path in ROOT.glob(pattern)
    if path.is_file()
)


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 300, "files stay under 300 lines"
    long = [
        f"{node.name} ({node.end_lineno - node.lineno + 1} lines)"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > 75
    ]
    assert not long, "functions stay under 60 lines of body"


@pytest.mark.parametrize("path", [*SOURCES, *TEXTS], ids=relative)
def test_the_project_speaks_of_itself_alone(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"(?<![\w.])/(?:work|root|home)/", text), "no path of one machine"
    assert "TODO" not in text or path == Path(__file__), "no unfinished work"
