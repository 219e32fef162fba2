"""The page on the fleet file tells every key with its range, and its examples run."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from data.fleet import types
from data.fleet.load import parse_fleet
from data.fleet.rules import FLEET_BOOK
from data.types import Slo
from planner.cli.main import cli

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "fleet-file.md").read_text()
SECTIONS = {
    "Top level": types.Fleet,
    "sites": types.Site,
    "links": types.Link,
    "gpu_pools": types.GpuPool,
    "models": types.Model,
    "engine": types.EngineSettings,
    "configs": types.ReplicaConfig,
    "classes": types.WorkloadClass,
    "match": types.ClassMatch,
    "slo": Slo,
    "tenants": types.Tenant,
    "reservations": types.Reservation,
    "placement": types.Placed,
    "endpoints": types.Endpoint,
}


def section(title: str) -> str:
    """Text between a heading and the next one."""
    return re.split(r"\n#+ ", re.split(rf"\n#+ {re.escape(title)}\n", PAGE)[1])[0]


def code(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def documented() -> list[tuple[str, type, str]]:
    return [(title, owner, f.name) for title, owner in SECTIONS.items() for f in dataclasses.fields(owner)]


def test_every_class_of_the_rule_book_has_a_section() -> None:
    assert set(FLEET_BOOK.rules) == set(SECTIONS.values())


@pytest.mark.parametrize(("title", "owner", "name"), documented())
def test_every_field_stands_in_its_section_with_its_range(title: str, owner: type, name: str) -> None:
    rows = [
        line for line in section(title).splitlines() if line.startswith(f"| `{FLEET_BOOK.key(owner, name)}` |")
    ]
    assert len(rows) == 1
    rule = FLEET_BOOK.rule(owner, name)
    if rule.minimum is not None:
        assert rule.range_text() in rows[0]
    if rule.plausible is not None:
        low, high = (f"{v:.0f}" if v == int(v) else f"{v:g}" for v in rule.plausible)
        assert f"plausible: {low} to {high}" in rows[0]
    item = next(f for f in dataclasses.fields(owner) if f.name == name)
    assert ("| required |" in rows[0]) == FLEET_BOOK.required(owner, item)


def test_no_section_names_a_key_that_does_not_exist() -> None:
    for title, owner in SECTIONS.items():
        keys = {FLEET_BOOK.key(owner, f.name) for f in dataclasses.fields(owner)}
        assert set(re.findall(r"^\| `(\w+)` \|", section(title), re.MULTILINE)) == keys


def test_the_example_is_a_sound_fleet_and_the_console_output_is_real(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = code("yaml")
    assert parse_fleet(example, "fleet.yaml").name == "small"
    broken = example.replace("count: 4", "count: -4").replace("ttft_s: 1.0", "ttft_ms: 1000")
    monkeypatch.chdir(tmp_path)
    Path("fleet.yaml").write_text(broken)
    result = CliRunner().invoke(cli, ["check", "fleet.yaml"])
    assert result.exit_code == 2
    (console,) = code("console")
    assert "$ tokenfleet check fleet.yaml\n" + result.output == console


def test_the_python_example_runs() -> None:
    (example,) = code("python")
    exec(compile(example, "fleet-file.md", "exec"), {})
