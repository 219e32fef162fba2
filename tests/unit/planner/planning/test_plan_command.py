"""``tokenfleet plan`` from the shell's point of view."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from data.plan_io import read_plan
from planner.cli.main import cli

DEMAND = """
demand:
  - {model: chat@v1, workload_class: interactive, tenant: beta, origin: door, tokens_per_s: 6000}
  - {model: chat@v1, workload_class: interactive, tenant: acme, origin: door, tokens_per_s: 3000}
"""


@pytest.fixture
def place(tmp_path: Path, fleet_text: str) -> Path:
    """A folder with a fleet file and a demand file."""
    (tmp_path / "fleet.yaml").write_text(fleet_text)
    (tmp_path / "demand.yaml").write_text(DEMAND)
    return tmp_path


def _plan(place: Path, *more: str) -> Result:
    words = ["plan", "--fleet", str(place / "fleet.yaml"), "--demand", str(place / "demand.yaml"), *more]
    return CliRunner().invoke(cli, words)


def test_plan_show_and_diff(place: Path) -> None:
    out = place / "plan.json"
    made = _plan(place, "--out", str(out))
    assert made.exit_code == 0, made.output
    assert "Replicas" in made.output
    plan = read_plan(out)
    assert plan.shares
    shown = CliRunner().invoke(cli, ["plan", "show", str(out)])
    assert plan.plan_id in shown.output
    again = _plan(place, "--running", str(out), "--json")
    document = json.loads(again.stdout)
    assert document["moves"] == []
    assert document["parent_id"] == plan.plan_id
    (place / "next.json").write_text(again.stdout)
    same = CliRunner().invoke(cli, ["plan", "diff", str(out), str(place / "next.json"), "--json"])
    assert json.loads(same.stdout)["places"] == []
    text = CliRunner().invoke(cli, ["plan", "diff", str(out), str(place / "next.json")])
    assert text.exit_code == 0


def test_strict_turns_a_broken_promise_into_exit_code_3(place: Path, fleet_text: str) -> None:
    """F117: the plan is written and says what is missing; --strict makes it an error of its own."""
    (place / "fleet.yaml").write_text(
        fleet_text.replace("{model: chat@v1, replicas: 1}", "{model: chat@v1, replicas: 30}")
    )
    out = place / "plan.json"
    loose = _plan(place, "--out", str(out))
    assert loose.exit_code == 0
    assert read_plan(out).status.value == "infeasible"
    assert _plan(place, "--strict").exit_code == 3


def test_the_documented_example_plans_and_moves_something(tmp_path: Path) -> None:
    example = Path(__file__).resolve().parents[4] / "examples" / "demand-four-sites.yaml"
    out = tmp_path / "plan.json"
    words = ["plan", "--fleet", "four-sites", "--demand", str(example), "--out", str(out), "--strict"]
    assert CliRunner().invoke(cli, words).exit_code == 0
    plan = read_plan(out)
    assert plan.moves
    assert plan.gap <= 0.0101


@pytest.mark.parametrize(
    "words",
    [
        ["plan"],
        ["plan", "--fleet", "four-sites"],
        ["plan", "--fleet", "four-sites", "--demand", "a", "--trace", "b"],
    ],
)
def test_bad_usage_has_exit_code_2(words: list[str]) -> None:
    assert CliRunner().invoke(cli, words).exit_code == 2


def test_bad_input_names_the_fault(place: Path) -> None:
    (place / "demand.yaml").write_text(DEMAND.replace("tenant: beta", "tenant: betta"))
    command = [sys.executable, "-m", "planner.cli.main", "plan", "--fleet", str(place / "fleet.yaml")]
    run = subprocess.run(
        [*command, "--demand", str(place / "demand.yaml")], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 2
    assert "demand.yaml:3" in run.stderr
    assert "betta" in run.stderr
    frozen = _plan(place, "--freeze", "nowhere")
    assert frozen.exit_code != 0


def test_demand_from_a_trace(place: Path) -> None:
    lines = [
        json.dumps(
            {
                "timestamp": 500 * i,
                "input_length": 800,
                "output_length": 120,
                "hash_ids": [i],
            }
        )
        for i in range(400)
    ]
    trace = place / "trace.jsonl"
    trace.write_text("\n".join(lines) + "\n")
    words = ["plan", "--fleet", str(place / "fleet.yaml"), "--trace", str(trace), "--format", "mooncake"]
    words += ["--model", "chat@v1", "--class", "interactive", "--tenant", "beta", "--json"]
    made = CliRunner().invoke(cli, words)
    assert made.exit_code == 0, made.output
    shares = [share for share in json.loads(made.stdout)["shares"] if share["tenant"] == "beta"]
    assert sum(share["share"] for share in shares) == pytest.approx(1.0, abs=1e-6)


def test_killing_the_solver_still_writes_a_plan(place: Path) -> None:
    """kill -9 of the solver process: the planner ends in time with a plan that says so."""
    out = place / "plan.json"
    command = [sys.executable, "-m", "planner.cli.main", "plan", "--fleet", str(place / "fleet.yaml")]
    command += ["--demand", str(place / "demand.yaml"), "--out", str(out), "--time-limit", "5"]
    planner = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    killed = 0
    while planner.poll() is None:
        children = Path(f"/proc/{planner.pid}/task/{planner.pid}/children")
        try:
            pids = [int(pid) for pid in children.read_text().split()]
        except OSError:
            break
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            killed += 1
        time.sleep(0.005)
    assert planner.wait(timeout=60) == 0
    assert planner.stderr is not None
    planner.stderr.close()
    assert killed >= 1
    plan = read_plan(out)
    assert sum(row.replicas for row in plan.replicas) > 0
    assert any("gave up" in row.reason or "error" in row.reason for row in plan.unmet)
