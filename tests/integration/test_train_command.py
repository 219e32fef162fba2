"""``tokenfleet train`` and ``tokenfleet models`` from a simulated run's log to a served prediction."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from data.catalog.load import load_catalog
from data.errors import FleetFileError, InputError, LogError, ModelError, SettingError
from data.fleet.reference import reference_fleet
from data.log.settings import LogSettings
from data.log.writer import LogWriter
from data.types import Request
from models.hardware import fleet_kinds
from models.store import ModelStore
from planner.cli.main import cli
from planner.sim.run import simulate
from planner.sim.settings import SimSettings
from router.build import endpoint_specs
from router.endpoints import EndpointTable
from router.registry import make_policy


def requests(count: int, seed: int) -> list[Request]:
    """A Poisson stream with log-normal lengths."""
    random = np.random.default_rng(seed)
    clock = 0.0
    rows = []
    for number in range(count):
        clock += random.exponential(0.12)
        prompt = int(np.clip(random.lognormal(7.6, 1.0), 16, 60_000))
        output = int(np.clip(random.lognormal(4.6, 0.8), 2, 1500))
        rows.append(
            Request(number, clock, prompt, output, 2048, (), 512, "assistant@v1", "default", "interactive", "main")
        )
    return rows


def simulated_log(folder: Path, seed: int) -> None:
    """The log of one run on the mixed pool."""
    fleet = reference_fleet("mixed-pool")
    specs = endpoint_specs(fleet, load_catalog(), fleet.placement)
    table = EndpointTable(specs)
    policy = make_policy("least_request", {}, table, seed)
    settings = SimSettings(seed=seed, cancel_share=0.02)
    with LogWriter(folder, LogSettings(rotate_age_s=None), writer_id="run") as log:
        simulate(fleet, specs, requests(1500, seed), policy, settings, table=table, sink=log)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def run_json(*arguments: str) -> Any:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    root = tmp_path_factory.mktemp("logs")
    for seed in (0, 1):
        simulated_log(root / str(seed), seed)
    return str(root / "0"), str(root / "1")


@pytest.fixture(scope="module")
def trained(logs: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    store = str(tmp_path_factory.mktemp("store"))
    return store, run_json("train", "--log", logs[0], "--log", logs[1], "--store", store, "--fleet", "mixed-pool")


def test_a_simulated_log_trains_a_better_model_than_the_prior(trained: tuple[str, dict[str, Any]]) -> None:
    _, values = trained
    assert values["version"] == "v0001"
    assert values["data"]["runs"] == 2
    assert values["data"]["rows"] > 2900
    model, prior = values["report"]["model"], values["report"]["prior"]
    assert model["loss"] < prior["loss"]
    assert values["promoted"]
    groups = {group["group"] for group in model["groups"]}
    assert {"all", "gpu_type:H100", "gpu_type:A100", "gpu_type:L40S", "prompt:<1k"} <= groups
    assert values["checks"]["falls_with_uncached_tokens"] <= 0.02


def test_cancelled_requests_enter_as_bounds(trained: tuple[str, dict[str, Any]]) -> None:
    assert 0 < trained[1]["data"]["censored"] < 100


def test_the_trained_model_routes(trained: tuple[str, dict[str, Any]]) -> None:
    """F069: the log of a run with the model carries its predictions."""
    fleet = reference_fleet("mixed-pool")
    specs = endpoint_specs(fleet, load_catalog(), fleet.placement)
    table = EndpointTable(specs)
    policy = make_policy("tokenpilot", {}, table, 0, ModelStore(Path(trained[0])).load())

    class Rows:
        def __init__(self) -> None:
            self.decisions: list[dict[str, Any]] = []

        def decision(self, row: dict[str, Any]) -> None:
            self.decisions.append(row)

        def outcome(self, row: dict[str, Any]) -> None:
            pass

    rows = Rows()
    simulate(fleet, specs, requests(200, 9), policy, SimSettings(), table=table, sink=rows)
    assert len(rows.decisions) == 200
    for row in rows.decisions:
        assert row["model_version"] == "v0001"
        assert 0 < row["predicted_ttft_p50_s"] <= row["predicted_ttft_p90_s"]
        assert 0 < row["predicted_tpot_p50_s"] <= row["predicted_tpot_p90_s"]


def test_second_training_is_published_but_does_not_replace_an_equal_model(
    logs: tuple[str, str], tmp_path: Path
) -> None:
    store = str(tmp_path)
    first = run("train", "--log", logs[0], "--store", store, "--no-promote")
    assert first.exit_code == 0, first.output
    assert "v0001: published, not promoted" in first.stdout
    assert ModelStore(tmp_path).current() is None
    second = run("train", "--log", logs[0], "--store", store)
    assert second.exit_code == 0, second.output
    assert "v0002: promoted" in second.stdout
    third = run("train", "--log", logs[0], "--store", store)
    assert "v0003: published, not promoted" in third.stdout
    assert "does not beat the serving model's" in third.stdout


def test_models_commands(trained: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    import shutil

    store = tmp_path / "store"
    shutil.copytree(trained[0], store)
    shutil.copytree(store / "versions" / "v0001", store / "versions" / "v0002")
    at = ("--store", str(store))
    listed = run_json("models", "list", *at)
    assert listed["serving"] == "v0001"
    assert [version["rows"] for version in listed["versions"]] == [trained[1]["data"]["rows"]] * 2
    assert run_json("models", "show", *at)["version"] == "v0001"
    assert len(run_json("models", "compare", "v0001", "v0002", *at)["versions"]) == 2
    assert run_json("models", "promote", "v0002", *at) == {"serving": "v0002", "history": ["v0001"]}
    assert run_json("models", "rollback", *at) == {"serving": "v0001", "history": []}
    for command in (("list",), ("show",), ("show", "v0001"), ("compare", "v0001"), ("promote", "v0001")):
        done = run("models", *command, *at)
        assert done.exit_code == 0
        assert "v0001" in done.stdout
    assert isinstance(run("models", "rollback", *at).exception, ModelError)
    assert isinstance(run("models", "show", "v9", *at).exception, ModelError)
    assert "latency model v0001: checksum and probe rows agree" in run("check", str(store)).stdout
    assert "no models" in run("models", "list", "--store", str(tmp_path)).stdout, "a folder without models yet"


def test_bad_input_is_told(logs: tuple[str, str], tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    cases: list[tuple[tuple[str, ...], type[Exception], str]] = [
        (("--log", str(tmp_path / "none")), LogError, "no log here"),
        (("--log", logs[0], "--quantiles", "a,b"), SettingError, "not a list of numbers"),
        (("--log", logs[0], "--quantiles", "0.9"), SettingError, "quantiles"),
        (("--log", logs[0], "--fleet", "odd"), FleetFileError, "odd"),
        (("--log", logs[0], "--since", "1e9"), ModelError, "no usable latency sample"),
        (("--log", logs[0], "--until", "5"), ModelError, "at least 50 needed"),
    ]
    for arguments, kind, text in cases:
        done = run("train", "--store", store, *arguments)
        assert isinstance(done.exception, kind), done.output
        assert re.search(text, str(done.exception))
    assert not (tmp_path / "store").exists()


def test_two_fleets_that_differ_are_refused() -> None:
    from dataclasses import replace

    fleet = reference_fleet("one-pool")
    engine = replace(fleet.models[0].engine, max_num_batched_tokens=512)
    other = replace(fleet, models=(replace(fleet.models[0], engine=engine),))
    with pytest.raises(InputError, match="differ"):
        fleet_kinds([fleet, other], load_catalog())
    assert len(fleet_kinds([fleet, fleet], load_catalog())) == 1
