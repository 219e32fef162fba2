"""From recorded demand to a demand file that the planner reads; the command from the shell's point of view."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from data.errors import SettingError
from data.fleet.types import Fleet
from data.plan_io import read_plan
from models.demand.settings import ForecastSettings
from planner.cli.main import cli
from planner.demand import LEVELS
from planner.demand_file import parse_demand
from planner.demand_forecast import PlanWindow, demand_file_text, forecast_demand
from planner.demand_history import RecordedDemand

KEYS = (("chat@v1", "interactive", "acme", "door"), ("chat@v1", "interactive", "beta", "door"))
SETTINGS = ForecastSettings(horizon_steps=12, refit_every_steps=24, season_s=14_400.0)


def recorded(gap: slice | None = None, windows: int = 150) -> RecordedDemand:
    rng = np.random.default_rng(0)
    wave = 1.0 + 0.4 * np.sin(2 * np.pi * np.arange(windows) / 24)
    requests = rng.poisson(np.array([[30.0], [60.0]]) * wave * 6) / 600
    outage = np.zeros(windows, dtype=np.bool_)
    if gap is not None:
        outage[gap] = True
    requests = np.where(outage, np.nan, requests)
    lengths = np.array([800.0, 900.0]), np.array([120.0, np.nan])
    return RecordedDemand(KEYS, requests, requests * 120.0, *lengths, 600.0, windows * 600.0, outage)


def test_a_forecast_is_read_back_as_it_was_made(fleet: Fleet) -> None:
    made = forecast_demand(recorded(), SETTINGS, PlanWindow(last=6))
    table = parse_demand(demand_file_text(made), "forecast.yaml", fleet)
    assert [row.key for row in table.rows] == list(KEYS)
    for ours, theirs in zip(made.demand.rows, table.rows, strict=True):
        assert theirs.quantiles == pytest.approx(ours.quantiles, rel=1e-6)
        assert list(theirs.quantiles) == sorted(theirs.quantiles)
    assert table.rows[0].output_tokens == 120.0
    assert table.rows[1].output_tokens is None
    assert not table.missing
    assert made.forecast.names[0].startswith("requests|")
    assert set(LEVELS) <= set(made.forecast.levels)


def test_the_busiest_window_is_at_least_the_mean() -> None:
    mean = forecast_demand(recorded(), SETTINGS, PlanWindow(last=12)).demand
    peak = forecast_demand(recorded(), SETTINGS, PlanWindow(last=12, peak=True)).demand
    for one, two in zip(mean.rows, peak.rows, strict=True):
        assert all(low <= high for low, high in zip(one.quantiles, two.quantiles, strict=True))


@pytest.mark.parametrize(
    ("gap", "held"), [(None, False), (slice(148, 150), True), (slice(145, 148), True), (slice(140, 147), False)]
)
def test_silence_holds_what_runs_until_the_source_has_settled(fleet: Fleet, gap: slice | None, held: bool) -> None:
    """F115: while the source is silent, and until 3 windows are known again, models may grow and not shrink."""
    made = forecast_demand(recorded(gap), SETTINGS, PlanWindow())
    table = parse_demand(demand_file_text(made), "forecast.yaml", fleet)
    assert bool(table.held_models()) is held
    assert [row.median > 0 for row in table.rows] == [True, True]


def test_windows_are_checked() -> None:
    for wrong in ({"first": 0}, {"first": 7, "last": 6}, {"settle_windows": 0}):
        with pytest.raises(SettingError):
            PlanWindow(**wrong)
    with pytest.raises(SettingError, match="beyond the horizon"):
        forecast_demand(recorded(), SETTINGS, PlanWindow(last=13))


@pytest.fixture
def tier(tmp_path: Path, fleet_text: str) -> Path:
    """A folder with a fleet and a demand table of four clients over a day and a half, with one outage."""
    rng = np.random.default_rng(1)
    lines = ["client,start_s,rate_per_s,cv,dist,param1,param2"]
    for window in range(216):
        for client in range(4):
            rate = 0.0 if 100 <= window < 104 else 2.0 + client + 0.3 * rng.random()
            lines.append(f"{client},{window * 600},{rate},1,{'Gamma' if rate else ''},1,1")
    (tmp_path / "rates.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "lengths.json").write_text(
        json.dumps({"0": {"0": {"input_tokens": "{500: 1.0}", "output_tokens": "{200: 1.0}"}}})
    )
    (tmp_path / "fleet.yaml").write_text(fleet_text)
    return tmp_path


def test_forecast_then_plan(tier: Path) -> None:
    """The planner consumes the forecast: more demand in the table, more replicas in the plan."""
    replicas = []
    for scale in ("0.2", "3"):
        words = ["forecast", str(tier / "rates.csv"), "--lengths", str(tier / "lengths.json"), "--scale", scale]
        words += ["--model", "chat@v1", "--class", "interactive", "--one-tenant", "beta", "--origin", "door"]
        words += [
            "--horizon",
            "7200",
            "--refit",
            "7200",
            "--fits",
            "2",
            "--out",
            str(tier / "demand.yaml"),
            "--json",
        ]
        made = CliRunner().invoke(cli, words)
        assert made.exit_code == 0, made.output
        answer = json.loads(made.stdout)
        assert (answer["windows"], answer["outage_windows"]) == (216, 4)
        assert answer["target_s"][0] == answer["now_s"] + 600.0
        median = answer["demand"][0]["quantiles"][LEVELS.index(0.5)]
        assert median == pytest.approx(float(scale) * 14.6 * 200, rel=0.05)
        plan = ["plan", "--fleet", str(tier / "fleet.yaml"), "--demand", str(tier / "demand.yaml")]
        done = CliRunner().invoke(cli, [*plan, "--out", str(tier / "plan.json")])
        assert done.exit_code == 0, done.output
        replicas.append(sum(row.replicas for row in read_plan(tier / "plan.json").replicas))
    assert replicas[1] > replicas[0]


def test_the_command_shows_who_serves_and_names_bad_input(tier: Path) -> None:
    names = ["--model", "chat@v1", "--class", "interactive", "--origin", "door"]
    shown = CliRunner().invoke(
        cli, ["forecast", str(tier / "rates.csv"), *names, "--horizon", "3600", "--fits", "2"]
    )
    assert shown.exit_code == 0, shown.output
    for word in ("persistence", "boosted", "combination", "outages of the collection"):
        assert word in shown.output
    blank = CliRunner().invoke(cli, ["forecast", str(tier / "rates.csv")])
    assert blank.exit_code != 0
    assert isinstance(blank.exception, Exception)
    assert "model" in str(blank.exception)
