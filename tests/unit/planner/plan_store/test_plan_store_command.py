"""Plans of a store from the shell."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from data.plan import PlanDocument
from data.plan_io import write_plan
from planner.cli.main import main
from planner.cli.plan import plan as plan_command
from planner.plan_store.store import PlanStore

MakePlan = Callable[[int], PlanDocument]


@pytest.fixture
def store(tmp_path: Path, plan: MakePlan) -> Path:
    made = PlanStore(tmp_path / "plans")
    made.lead(1000.0)
    for count in (1, 2, 3):
        made.publish(plan(count), 1_767_225_600.0 + count, reason=f"{count} wanted")
    made.roll_back(1_767_225_700.0, "Goodput fell")
    return tmp_path / "plans"


def run(*arguments: object) -> Result:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(
        plan_command, [str(one) for one in arguments], catch_exceptions=False
    )
    assert result.exit_code == 0
    return result


def shown(place: object) -> str:
    found: str = json.loads(run("show", place, "--json").stdout)["plan_id"]
    return found


def test_show_takes_a_file_a_store_and_a_version(store: Path, tmp_path: Path, plan: MakePlan) -> None:
    write_plan(plan(7), tmp_path / "file@2.json")
    assert shown(tmp_path / "file@2.json") == "plan-7"
    assert shown(store) == "plan-2"
    assert shown(f"{store}@3") == "plan-3"
    assert shown(store / "plan.json") == "plan-2"


def test_diff_takes_the_same(store: Path) -> None:
    found = json.loads(run("diff", f"{store}@3", store, "--json").stdout)
    assert (found["old_id"], found["new_id"], found["gpus_after"]) == ("plan-3", "plan-2", 2)


def test_history_tells_who_and_why(store: Path) -> None:
    found = json.loads(run("history", store, "--limit", 2, "--json").stdout)
    assert [(one["version"], one["kind"], one["restores"]) for one in found] == [
        (4, "rolled_back", 2),
        (3, "published", None),
    ]
    text = run("history", store).stdout
    assert "rolled back to 2" in text
    assert "2026-01-01 00:01:40" in text


def test_kubernetes_of_a_version(store: Path) -> None:
    documents = list(yaml.safe_load_all(run("kubernetes", f"{store}@3", "--site", "eu-1").stdout))
    assert documents[0]["spec"] == {"replicas": 3}
    assert json.loads(run("kubernetes", f"{store}@3", "--site", "eu-1", "--json").stdout) == documents


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "{store}@99"],
        ["show", "{folder}"],
        ["show", "{store}/none.json"],
        ["history", "{folder}"],
        ["kubernetes", "{store}", "--site", "mars"],
        ["kubernetes", "{store}", "--site", "eu-1", "--kind", "Pod"],
    ],
)
def test_what_is_not_there_is_bad_input(store: Path, arguments: list[str]) -> None:
    names = {"store": store, "folder": store.parent}
    with pytest.raises(SystemExit) as ended:
        main(["plan", *(one.format(**names) for one in arguments)])
    assert ended.value.code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--demand", "d.yaml", "--every", "1m", "--cron", "* * * * *"],
        ["--demand", "d.yaml", "--every", "soon"],
        ["--demand", "d.yaml", "--cron", "soon"],
        ["--demand", "d.yaml", "--set", "watch=5"],
        ["--demand", "d.yaml", "--set", "falls=0"],
        ["--demand", "d.yaml", "--set", "falls=1.5"],
        ["--demand", "d.yaml", "--set", "watch_s=true"],
        ["--demand", "d.yaml", "--listen", "0.0.0.0:8480"],
        ["--demand", "d.yaml", "--tokens", "none.yaml"],
        ["--demand", "d.yaml", "--tls-key", "k.pem"],
        ["--demand", "d.yaml", "--webhook", "ftp://x"],
        ["--demand", "d.yaml", "--webhook", "http://x", "--webhook-secret", "none"],
        ["--demand", "d.yaml", "--retrain-every", "1d"],
        ["--prometheus", "prometheus:9090"],
    ],
)
def test_a_planner_that_is_started_wrongly_does_not_start_f130_f134(tmp_path: Path, arguments: list[str]) -> None:
    """F130, F134: unknown settings and values that cannot be are errors at the start."""
    with pytest.raises(SystemExit) as ended:
        main(["serve", "planner", "--fleet", "one-pool", "--plans", str(tmp_path / "plans"), *arguments])
    assert ended.value.code == 2
