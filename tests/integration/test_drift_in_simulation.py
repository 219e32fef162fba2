"""A latency shift in simulated runs: found within the window, the prior serves, nothing is found before it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from data.catalog.load import load_catalog
from data.fleet.reference import reference_fleet
from data.log.reader import LogReader
from data.log.settings import LogSettings
from data.log.writer import LogWriter
from data.outcome_sink import RecordSink
from data.synth.profiles import PROFILES
from data.types import Request
from models.base import LatencyPredictor
from models.drift import DriftMonitor, DriftState, ErrorBatch
from models.drift_guard import DriftGuarded
from models.drift_watch import DriftWatch
from models.hardware import fleet_kinds
from models.physics import PriorPredictor
from models.samples import samples_from_tables
from models.store import ModelStore
from models.training import TrainingSettings, publish, train
from planner.arm import Arm
from planner.cli.main import cli
from planner.fleet_streams import fleet_streams
from planner.scenario import Scenario
from planner.sim.run import simulate
from planner.sim.settings import FailureEvent, SimSettings
from planner.trace_source import Shaped, SynthTrace
from router.build import endpoint_specs
from router.endpoints import EndpointTable
from router.registry import make_policy

SHIFT_S = 600.0
FLEET = reference_fleet("mixed-pool")
SPECS = endpoint_specs(FLEET, load_catalog(), FLEET.placement)
KINDS = fleet_kinds([FLEET], load_catalog())


def requests(until_s: float, seed: int) -> Iterator[Request]:
    """A Poisson stream with log-normal lengths."""
    random = np.random.default_rng(seed)
    clock, number = random.exponential(0.12), 0
    while clock < until_s:
        prompt = int(np.clip(random.lognormal(7.6, 1.0), 16, 60_000))
        output = int(np.clip(random.lognormal(4.6, 0.8), 2, 1500))
        yield Request(
            number, clock, prompt, output, 2048, (), 512, "assistant@v1", "default", "interactive", "main"
        )
        clock, number = clock + random.exponential(0.12), number + 1


def run(seed: int, until_s: float, sink: RecordSink, predictor: LatencyPredictor | None, factor: float) -> None:
    """TokenPilot on three GPU types; from ``SHIFT_S`` on every step takes ``factor`` times as long."""
    failures = tuple(FailureEvent(SHIFT_S, row, "slow", 1e6, factor) for row in range(len(SPECS)))
    settings = SimSettings(seed=seed, cancel_share=0.02, failures=failures if factor != 1.0 else ())
    table = EndpointTable(SPECS)
    policy = make_policy("tokenpilot", {}, table, seed, predictor)
    simulate(FLEET, SPECS, requests(until_s, seed), policy, settings, table=table, sink=sink)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ModelStore:
    """A model trained on what the same policy did with the prior; it serves."""
    root = tmp_path_factory.mktemp("drift")
    tables = []
    for seed in (100, 101):
        log_folder = root / str(seed)
        with LogWriter(log_folder, LogSettings(rotate_age_s=None), writer_id="run") as log:
            run(seed, 480.0, log, None, 1.0)
        tables.append(LogReader(log_folder).window(0.0, 1e9))
    store = ModelStore(root / "store")
    trained = train(samples_from_tables(tables, KINDS), TrainingSettings(), "2026-01-01T00:00:00Z")
    store.promote(publish(trained, store))
    return store


class Recorder(DriftMonitor):
    """A monitor that remembers when it raised alarms."""

    def __init__(self) -> None:
        super().__init__()
        self.raised_s: list[float] = []

    def add(self, batch: ErrorBatch) -> None:
        before = self.alarms
        super().add(batch)
        self.raised_s += [self.newest_s] * (self.alarms - before)


@dataclass
class Watched:
    monitor: Recorder
    guard: DriftGuarded


def watched(store: ModelStore, seed: int, until_s: float, factor: float) -> Watched:
    model, monitor = store.load(), Recorder()
    guard = DriftGuarded(model, PriorPredictor(quantiles=model.quantiles), monitor)
    watch = DriftWatch(model, monitor, KINDS)
    run(seed, until_s, watch, guard, factor)
    watch.flush()
    return Watched(monitor, guard)


def check_shift(found: Watched) -> None:
    raised = found.monitor.raised_s
    assert min(raised) >= SHIFT_S, "an alarm before the shift"
    assert min(raised) <= SHIFT_S + 60.0
    enough = [group for group in found.monitor.groups() if group.state is not DriftState.NOT_ENOUGH_DATA]
    assert {group.state for group in enough} == {DriftState.DRIFTED}
    assert found.guard.rows_by_prior > 1000


def test_f069_a_shift_of_60_percent_is_found_and_the_prior_serves(store: ModelStore) -> None:
    check_shift(watched(store, 1, 1000.0, 1.6))


def test_f069_no_alarm_without_a_shift(store: ModelStore) -> None:
    found = watched(store, 2, 900.0, 1.0)
    assert found.monitor.raised_s == []
    assert found.guard.rows_by_prior == 0


def test_f069_the_simulator_guards_an_arm_and_says_so_in_its_decisions(store: ModelStore, tmp_path: Path) -> None:
    """The same arm with and without the guard: decisions read ``drift`` and name the prior."""
    failures = tuple(FailureEvent(200.0, row, "slow", 1e6, 1.6) for row in range(len(SPECS)))
    streams = fleet_streams(FLEET, PROFILES["conversation"], 5.0)
    base = Scenario(FLEET, Shaped(SynthTrace(streams, 400.0, "synthetic")), SimSettings(failures=failures))
    degraded = {}
    for guard in (True, False):
        place = tmp_path / str(guard)
        with LogWriter(place, LogSettings(rotate_age_s=None), writer_id="run") as log:
            base.run(Arm("a", "tokenpilot", predictor_path=str(store.root), drift_guard=guard), 5, log)
        rows = LogReader(place).window(0.0, 1e9).to_pylist()
        degraded[guard] = [row for row in rows if row["degraded"] == "drift"]
    assert degraded[False] == []
    assert len(degraded[True]) > 100
    assert {row["model_version"] for row in degraded[True]} == {"prior"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_f069_over_ten_seeds(store: ModelStore, seed: int) -> None:
    check_shift(watched(store, seed, 1200.0, 1.6))


def test_f069_the_command_tells_drift_by_its_exit_code(store: ModelStore, tmp_path: Path) -> None:
    for name, factor in (("calm", 1.0), ("shifted", 1.6)):
        with LogWriter(tmp_path / name, LogSettings(rotate_age_s=None), writer_id="run") as log:
            run(3, 760.0, log, None, factor)
    arguments = ["models", "drift", "--store", str(store.root), "--fleet", "mixed-pool"]
    calm = CliRunner().invoke(cli, [*arguments, "--log", str(tmp_path / "calm"), "--json"])
    assert calm.exit_code == 0, calm.output
    states = {group["state"] for group in json.loads(calm.stdout)["groups"]}
    assert states <= {"ok", "not enough data"}
    shifted = CliRunner().invoke(cli, [*arguments, "--log", str(tmp_path / "shifted")])
    assert shifted.exit_code == 1, shifted.output
    assert "drifted" in shifted.output
    before = CliRunner().invoke(cli, [*arguments, "--log", str(tmp_path / "shifted"), "--until", "590"])
    assert before.exit_code == 0, before.output
