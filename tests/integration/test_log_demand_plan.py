"""From a simulated run's log to a forecast and a plan, by the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from planner.cli.main import cli


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, list(arguments))
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten minutes of the one-pool fleet, one replica hung for a while, clients that try again."""
    folder = tmp_path_factory.mktemp("log") / "run"
    run(
        "simulate", "--fleet", "one-pool", "--synth", "conversation:1.5:600:interactive", "--log", str(folder),
        "--policy", "least_request", "--sim", "retries=1", "--failure", "crash:0:120:60", "--json",
    )  # fmt: skip
    return folder


def test_simulate_log_forecast_plan(log: Path, tmp_path: Path) -> None:
    """The forecast from the log stands near the offered load, and its file makes a plan."""
    out, plan = tmp_path / "demand.yaml", tmp_path / "plan.json"
    common = ("--step", "30", "--plan-for", "120", "--horizon", "120")
    made = json.loads(
        run("forecast", "--log", str(log), "--origin", "main", *common, "--out", str(out), "--json").stdout
    )
    assert made["windows"] == 20
    assert made["outage_windows"] == 0
    (row,) = made["demand"]
    assert row["key"] == ["assistant@v1", "interactive", "default", "main"]
    # 1.5 requests/s of about 340 output tokens, within what ten minutes can tell.
    assert 200 < row["quantiles"][1] < 1200
    assert row["quantiles"] == sorted(row["quantiles"])
    assert "input_variation" in out.read_text()
    run("plan", "--fleet", "one-pool", "--demand", str(out), "--out", str(plan), "--time-limit", "5")
    planned = json.loads(plan.read_text())
    assert sum(place["replicas"] for place in planned["replicas"]) >= 1


def test_plan_from_a_log_is_the_plan_from_its_forecast(log: Path) -> None:
    """One step from the log: the same model, a median near the log's rate, and the origin is the only site."""
    document: dict[str, Any] = json.loads(
        run(
            "plan", "--fleet", "one-pool", "--demand-log", str(log), "--bin", "30", "--time-limit", "5", "--json"
        ).stdout
    )
    assert {place["model"] for place in document["replicas"]} == {"assistant@v1"}
    assert document["goodput_tokens_per_s"] > 0


def test_names_that_the_fleet_does_not_know_are_left_out_and_counted(log: Path) -> None:
    result = CliRunner().invoke(
        cli,
        ["plan", "--fleet", "four-sites", "--demand-log", str(log), "--bin", "60", "--time-limit", "5", "--json"],
    )
    assert result.exit_code == 0, result.output
    notes = " ".join(row["reason"] for row in json.loads(result.stdout)["unmet"] if row["what"] == "notice")
    assert "1 commodities left out: unknown tenant 'default'" in notes


def test_bad_sources_are_usage_errors(log: Path, tmp_path: Path) -> None:
    both = ["plan", "--fleet", "one-pool", "--demand-log", str(log), "--trace", str(tmp_path)]
    assert CliRunner().invoke(cli, both).exit_code == 2
    assert CliRunner().invoke(cli, ["forecast"]).exit_code == 2
    assert CliRunner().invoke(cli, ["forecast", str(tmp_path), "--log", str(log)]).exit_code == 2


def test_a_plan_with_measured_capacities_keeps_them(log: Path, tmp_path: Path) -> None:
    """The cache is made by the first step; without time the closed form serves and the step says so."""
    cache = tmp_path / "capacity.json"
    arguments = ["plan", "--fleet", "one-pool", "--demand-log", str(log), "--bin", "60", "--time-limit", "5"]
    arguments += ["--capacity-cache", str(cache), "--json"]
    hurried = CliRunner().invoke(cli, [*arguments, "--capacity-limit", "0"])
    assert hurried.exit_code == 0, hurried.output
    assert "3 capacities are not measured yet" in hurried.stderr
    assert not cache.exists()
