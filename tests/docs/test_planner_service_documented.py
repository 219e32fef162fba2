"""``docs/planner-service.md`` names every setting, route, metric and option as the code has them."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from pathlib import Path

import click
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from data.plan import PlanDocument, PlannedReplicas, PlanStatus, VersionRamp
from planner.cli.serve import serve
from planner.loop.settings import LoopSettings
from planner.loop.status import LoopStatus, StepReport
from planner.outlets.gauges import PlannerMetrics
from planner.plan_store.entry import EntryKind, StoreEntry
from planner.plan_store.layout import Published
from router.serving.reload import ReloadStatus

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "planner-service.md").read_text()
LINES = PAGE.splitlines()


@pytest.mark.parametrize("field", dataclasses.fields(LoopSettings), ids=lambda field: field.name)
def test_every_setting_stands_there_with_its_default(field: dataclasses.Field[object]) -> None:
    shown = f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
    assert sum(line.startswith(f"| `{field.name}` | {shown} |") for line in LINES) == 1
    assert LoopSettings.__doc__ is not None
    assert f"\n        {field.name}: " in LoopSettings.__doc__


def test_every_route_stands_there_with_its_role() -> None:
    routes = (ROOT / "planner" / "api").glob("*_routes.py")
    code = "\n".join(path.read_text() for path in routes)
    found = {f"{method.upper()} {path}" for method, path in re.findall(r'@routes\.(get|post)\(\s*"([^"]+)"', code)}
    documented = {line.split("`")[1] for line in LINES if re.match(r"\| `(GET|POST) ", line)}
    assert documented == found
    for line in LINES:
        if re.match(r"\| `POST /v1/(roll-back|step)", line):
            assert "| operate |" in line


def test_every_metric_stands_there_with_its_labels() -> None:
    row = PlannedReplicas("B", "chat-h100", "chat@v1", "H100", 1, 2)
    ramp = VersionRamp("chat", "chat@v1", "chat@v2", 0.1, "t", "ramp-1")
    plan = PlanDocument(
        "plan-1", None, "t", "t", "t", "f", {}, PlanStatus.OPTIMAL, 1.0, 1.0, 1.0, "b", (row,), ramps=(ramp,)
    )
    entry = StoreEntry(1, 1, "plan-1", "000000001-plan-1.json", "0" * 64, 1.0, EntryKind.PUBLISHED)
    report = StepReport(1.0, "publish", "", seconds={"plan": 1.0})
    status = LoopStatus(True, 1, False, 1.0, 0, None, report, "", ReloadStatus("fleet", "", "", ()), (), Counter())
    registry = CollectorRegistry(auto_describe=False)
    registry.register(PlannerMetrics(lambda: Published(entry, plan), lambda: status, lambda: (0, 0)))
    text = generate_latest(registry).decode()
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, labels = re.match(r"(\w+)(?:\{(.*)\})?", line).groups()  # type: ignore[union-attr]
            found[name] = set(re.findall(r'(\w+)="', labels or ""))
    documented = {
        line.split("`")[1]: set(re.findall(r"`(\w+)`", line.split("|", 3)[3]))
        for line in LINES
        if line.startswith("| `tokenfleet_planner_")
    }
    assert documented == found


def test_every_option_in_the_page_exists() -> None:
    planner = serve.commands["planner"]
    router = serve.commands["router"]
    options = {
        flag
        for command in (planner, router)
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for flag in parameter.opts
    }
    for line in LINES:
        if line.strip().startswith("tokenfleet serve"):
            assert set(re.findall(r"(?<= )--[a-z-]+", line)) <= options
