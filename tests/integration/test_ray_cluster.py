"""Sweeps and training on a real Ray cluster of two workers on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.training_log import FLEET, kinds, write_log
from data.errors import InputError, LogError
from models.evaluate import evaluate
from models.physics import PriorPredictor
from models.store import ModelStore
from models.training import Trained, TrainingSettings, publish, train_stock
from models.training_backend import LocalBackend
from planner.cli.main import cli
from planner.local_pool import LocalPool
from planner.log_samples import LogPart, log_parts
from planner.ray_pool import RayPool
from planner.ray_session import load_ray, ray_session
from planner.ray_training import RayBackend
from planner.work_pool import WorkError, WorkSettings, in_order

ROWS = 24_000
LEVELS = (0.1, 0.5, 0.9, 0.99)
LOSS_TOLERANCE = 0.02
"""Relative difference of the loss on the newest window; 0.0002 was measured on a million rows."""
SWEEP = ("compare", "--fleet", "one-pool", "--synth", "conversation:1:10", "--policies", "random")
slow = pytest.mark.slow


def square(number: int) -> int:
    return number * number


def drawn(seed: int) -> bytes:
    return np.random.default_rng(seed).standard_normal(1000).tobytes()


def refuse_three(number: int) -> int:
    if number == 3:
        raise InputError("no such thing", source="fleet.yaml", line=3)
    return number


def die_at_three(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die_the_first_time(marker: Path) -> str:
    if not marker.exists():
        marker.write_text("was here")
        os.kill(os.getpid(), signal.SIGKILL)
    return marker.read_text()


def never_done(number: int) -> int:
    threading.Event().wait()
    return number


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayPool]:
    """A pool on a cluster of two processors that lives as long as this module's tests."""
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    with ray_session("local", 2), RayPool("auto") as pool:
        yield pool


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "log"
    write_log(folder, ROWS, rate_per_s=ROWS / 40_000.0)
    return folder


def test_without_the_extra_the_message_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"--ray: Ray is not installed; expected pip install 'tokenfleet\[ray\]'"):
        load_ray()
    done = CliRunner().invoke(cli, [*SWEEP, "--ray", "local"])
    assert isinstance(done.exception, InputError)


def test_public_logs_are_not_for_a_cluster(tmp_path: Path) -> None:
    arguments = ["train", "--public", "vtc=runs.csv", "--store", str(tmp_path), "--ray", "local"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 2
    assert "--ray reads --log only" in done.stderr


def test_a_pool_must_be_open() -> None:
    with pytest.raises(WorkError, match="outside its with block"):
        list(RayPool("local").map(square, [1]))


@slow
def test_results_are_those_of_this_machine_bit_for_bit(cluster: RayPool) -> None:
    assert cluster.workers == 2
    with LocalPool(2) as here:
        assert list(in_order(cluster, drawn, range(20))) == list(in_order(here, drawn, range(20)))


@slow
def test_errors_deaths_and_deadlines_are_told(cluster: RayPool, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^fleet\.yaml:3: no such thing$"):
        dict(cluster.map(refuse_three, range(9)))
    assert dict(cluster.map(die_the_first_time, [tmp_path / "marker"])) == {0: "was here"}
    with pytest.raises(WorkError, match=r"worker process died 2 times.*: 3$"):
        dict(cluster.map(die_at_three, range(9)))
    hurried = RayPool("auto", WorkSettings(deadline_s=3.0))
    with pytest.raises(WorkError, match="3 of 3 jobs unfinished"), hurried:
        dict(hurried.map(never_done, range(3)))
    assert list(in_order(cluster, square, range(6))) == [0, 1, 4, 9, 16, 25], "the cluster is fit for more"


@slow
def test_a_sweep_gives_the_same_comparison(cluster: RayPool) -> None:
    def compared(*more: str) -> Any:
        options = ["--fleet", "mixed-pool", "--synth", "conversation:3:60:interactive", "--seeds", "2", "--json"]
        done = CliRunner().invoke(cli, ["compare", "--policies", "random,least_request", *options, *more])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    assert _without_clock(compared("--ray", "auto")) == _without_clock(compared("--workers", "2"))


def _without_clock(value: Any) -> Any:
    """The values less what a wall clock told."""
    if isinstance(value, dict):
        return {key: _without_clock(one) for key, one in value.items() if "wall" not in key}
    return [_without_clock(one) for one in value] if isinstance(value, list) else value


@slow
def test_workers_that_fit_together_reach_the_quality_of_one(cluster: RayPool, log: Path, tmp_path: Path) -> None:
    """Every objective and quantile of ours, on two workers with half of the rows each."""
    parts = log_parts([log], kinds(), (0.0, 1e9))
    assert len(parts) >= 6
    settings = TrainingSettings(quantiles=LEVELS)
    told: list[int] = []
    here = LocalBackend().read(parts)
    there = RayBackend(cluster, tmp_path).read(parts, lambda: told.append(1))
    assert len(told) == len(parts)
    np.testing.assert_array_equal(there.facts.decided_s, here.facts.decided_s)
    every = np.ones(ROWS, dtype=bool)
    np.testing.assert_array_equal(there.take(every).features, here.take(every).features)
    alone, together = (train_stock(stock, settings, "t") for stock in (here, there))
    assert together.texts != alone.texts, "two workers did fit"
    assert together.card.low == alone.card.low
    assert together.card.high == alone.card.high
    assert together.card.roles == alone.card.roles
    for target in ("ttft_s", "tpot_s"):
        np.testing.assert_allclose(together.card.clamp[target], alone.card.clamp[target], rtol=1e-9)
    assert together.checks.passed
    assert together.report.loss == pytest.approx(alone.report.loss, rel=LOSS_TOLERANCE)
    assert together.report.loss < 0.9 * together.prior_report.loss
    for mine, wanted in zip(together.report.groups[:2], alone.report.groups[:2], strict=True):
        for level in LEVELS:
            assert mine.coverage[str(level)] == pytest.approx(wanted.coverage[str(level)], abs=0.01)
    _serves(together, tmp_path / "store")


def _serves(trained: Trained, folder: Path) -> None:
    store = ModelStore(folder)
    store.promote(publish(trained, store))
    got = evaluate(store.load(), trained.test)
    assert got.loss == trained.report.loss
    prior = PriorPredictor(quantiles=trained.card.quantiles, codes=trained.test.codes)
    assert got.loss < evaluate(prior, trained.test).loss


@slow
def test_the_same_cluster_fits_the_same_bytes_twice(cluster: RayPool, log: Path, tmp_path: Path) -> None:
    stock = RayBackend(cluster, tmp_path).read(log_parts([log], kinds(), (0.0, 1e9)))
    assert train_stock(stock, TrainingSettings(), "t").texts == train_stock(stock, TrainingSettings(), "t").texts


@slow
def test_a_log_error_on_a_worker_is_raised_here(cluster: RayPool, tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no log here"):
        RayBackend(cluster, tmp_path).read([LogPart(tmp_path / "none", 0, (0.0, 1.0), kinds())])


@slow
def test_the_command_trains_on_the_cluster(cluster: RayPool, log: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    arguments = ["train", "--log", str(log), "--store", str(store), "--fleet", FLEET, "--json"]
    done = CliRunner().invoke(cli, [*arguments, "--ray", "auto", "--priority", "normal"])
    assert done.exit_code == 0, done.output
    values = json.loads(done.stdout)
    assert values["promoted"], values["reasons"]
    assert values["data"]["rows"] == ROWS
    assert ModelStore(store).load().version == "v0001"
    assert list(store.glob(".ray-*")) == [], "no notes of the cluster stay behind"


@slow
def test_no_cluster_at_the_address() -> None:
    """In a process of its own: this one is connected."""
    program = "from planner.cli.main import main; main()"
    command = [sys.executable, "-c", program, *SWEEP, "--ray", "127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "--ray: no Ray cluster" in done.stderr
