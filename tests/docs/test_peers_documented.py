"""``docs/peers.md`` names every rival that the code has, and the trials that it gets; links lead somewhere."""

from __future__ import annotations

import re
from math import prod
from pathlib import Path

import pytest

from benchmarks.bench_slomax import GRIDS
from benchmarks.proof.tuning import TRIALS, trials
from router.policies.base import PolicyEntry
from router.registry import POLICIES
from router.sites.registry import SITE_RULES
from router.slomax.registry import FLOWS

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "peers.md").read_text()
LINES = PAGE.splitlines()


@pytest.mark.parametrize("entry", POLICIES.values(), ids=list(POLICIES))
def test_the_trials_of_each_policy(entry: PolicyEntry) -> None:
    grid = prod(len(values) for values in entry.grid.values()) if entry.grid else 0
    assert f"| `{entry.name}` | {grid} | {len(trials(entry.name))} |" in LINES
    assert f"at most {TRIALS} trials" in PAGE


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "tokenpilot"])
def test_what_is_missing_of_each_policy(name: str) -> None:
    _, part = PAGE.split("## Routing policies")
    table = part.split("\n## ")[0]
    assert sum(f"`{name}`" in line.split("|")[1] for line in table.splitlines() if line.startswith("| `")) == 1


@pytest.mark.parametrize("name", [name for name in FLOWS if name != "slomax"])
def test_every_flow_control_has_its_settings(name: str) -> None:
    assert len(GRIDS[name]) == len(GRIDS["slomax"]) == 4
    assert sum(line.startswith(f"| `{name}` |") for line in LINES) == 1


@pytest.mark.parametrize("name", [name for name in SITE_RULES if name != "fleetmind"])
def test_every_rule_of_site_choice(name: str) -> None:
    _, part = PAGE.split("## Site choice")
    assert f"`{name}`" in part.split("\n## ")[0]


@pytest.mark.parametrize("page", ["peers.md", "referee.md"])
def test_links_lead_to_pages(page: str) -> None:
    for target in re.findall(r"\]\(([\w./-]+)\)", (DOCS / page).read_text()):
        assert (DOCS / target).exists(), target
