"""The pages on engine metrics and endpoint state name every series, state, setting and reason; examples run."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from benchmarks.bench_scrape import BUCKETS
from benchmarks.fakes.pages import Load, vllm_page
from data.fleet.types import Endpoint
from router.engines.aliases import QUANTITIES
from router.engines.registry import ENGINES
from router.feeds.breaker import HealthSettings, Phase
from router.feeds.completion_probe import PROBE_FAILURES
from router.feeds.endpoint_state import ReportState, StateSettings
from router.feeds.page_fetcher import SCRAPE_FAILURES
from router.feeds.probe_settings import ProbeSettings
from router.feeds.scrape import ScrapeSettings
from router.feeds.stages import Stage

DOCS = Path(__file__).resolve().parents[2] / "docs"
METRICS = (DOCS / "engine-metrics.md").read_text()
STATE = (DOCS / "endpoint-state.md").read_text()


def rows(page: str, first: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith(f"| `{first}` |")]


@pytest.mark.parametrize("kind", list(ENGINES))
def test_every_series_of_every_engine_stands_in_its_table(kind: str) -> None:
    adapter = ENGINES[kind]
    section = METRICS.split(f"\n## {kind}\n")[1].split("\n## ")[0]
    assert adapter.path in section
    assert adapter.source in section
    for row in adapter.rows:
        (line,) = rows(section, row.quantity)
        assert f"| {row.combine} | {'yes' if row.required else 'no'} |" in line
        for alias in row.aliases:
            assert f"`{alias.of.name}" in line
            assert f"({alias.versions})" in line
            assert all(f'{key}="{value}"' in line for key, value in alias.of.labels)
            assert alias.of.value_label in line
            assert alias.over is None or alias.over.name in line
    assert len(re.findall(r"^\| `", section, re.MULTILINE)) == len(adapter.rows)


def test_every_quantity_and_reason_is_explained() -> None:
    for name, meaning in {**QUANTITIES, **SCRAPE_FAILURES}.items():
        assert f"| `{name}` | {meaning} |" in METRICS


@pytest.mark.parametrize(
    ("page", "settings"), [(METRICS, ScrapeSettings), (STATE, StateSettings), (STATE, HealthSettings)]
)
def test_every_setting_stands_in_its_page_with_its_default(page: str, settings: type) -> None:
    for field in dataclasses.fields(settings):
        (line,) = rows(page, field.name)
        assert float(line.split("|")[2]) == field.default


def test_every_probe_setting_failure_and_stage_stands_in_the_page_f105() -> None:
    for field in dataclasses.fields(ProbeSettings):
        (line,) = rows(STATE, f"probe.{field.name}")
        told = line.split("|")[2].strip().strip("`")
        assert told == (field.default if field.name == "path" else "none") or float(told) == field.default
    for name, meaning in PROBE_FAILURES.items():
        assert f"| `{name}` | {meaning} |" in STATE
    for stage in Stage:
        assert len(rows(STATE, stage.value)) == 1


def test_every_state_and_phase_is_explained() -> None:
    for name in (*(state.value for state in ReportState), *(phase.value for phase in Phase)):
        assert len(rows(STATE, name)) == 1


def test_the_examples_run() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", METRICS, re.DOTALL)
    exec(compile(example, "engine-metrics.md", "exec"), {})
    for example in re.findall(r"```python\n(.*?)```", STATE, re.DOTALL):
        exec(compile(example, "endpoint-state.md", "exec"), {})
    (listed,) = re.findall(r"```json\n(.*?)```", STATE, re.DOTALL)
    assert [Endpoint(**entry) for entry in json.loads(listed)["endpoints"]]


def test_the_page_that_is_measured_has_the_length_that_is_told() -> None:
    assert 43_000 <= len(vllm_page(Load(), BUCKETS)) <= 47_000
