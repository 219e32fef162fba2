"""Scenarios with the real simulator: the same in every process, plans and models in place, clear refusals."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from data.errors import InputError, ModelError, SettingError, TraceError
from data.fleet.reference import reference_fleet
from data.plan import PlanDocument, PlannedReplicas
from data.plan_io import write_plan
from data.synth.profiles import PROFILES
from data.traces.transform import Assignment
from planner.arm import Arm
from planner.attainment_level import find_load
from planner.compare import Comparison, compare
from planner.fleet_streams import fleet_streams
from planner.load_level import LoadSearch
from planner.report.data import ReportData
from planner.run_pool import RunPool
from planner.scenario import Scenario, carried_out, sim_settings
from planner.sim.settings import SimSettings
from planner.trace_source import FileTrace, Shaped, SynthTrace
from router.policies.settings import Setting

TRACE = """{"timestamp": 0, "input_length": 900, "output_length": 40, "hash_ids": [1, 2]}
{"timestamp": 3000, "input_length": 1400, "output_length": 60, "hash_ids": [1, 2, 3]}
{"timestamp": 3000, "input_length": 300, "output_length": 5, "hash_ids": [9]}
not json
{"timestamp": 6000, "input_length": 1024, "output_length": 12, "hash_ids": [1, 2]}
"""


def one_pool(profile: str = "chat", rate_per_s: float = 6.0, duration_s: float = 40.0) -> Scenario:
    fleet = reference_fleet("one-pool")
    streams = fleet_streams(fleet, PROFILES[profile], rate_per_s)
    return Scenario(fleet, Shaped(SynthTrace(streams, duration_s, profile)))


@pytest.fixture
def trace_file(tmp_path: Path) -> str:
    path = tmp_path / "trace.jsonl"
    path.write_text(TRACE)
    return str(path)


def test_a_scenario_survives_the_way_to_a_worker_and_gives_the_same_run() -> None:
    scenario = one_pool()
    arm = Arm("power_of_two", "power_of_two")
    here = scenario.run(arm, 3)
    there = pickle.loads(pickle.dumps(scenario)).run(pickle.loads(pickle.dumps(arm)), 3)
    assert dataclasses.replace(here.total) == dataclasses.replace(there.total)
    assert np.array_equal(here.endpoint_requests, there.endpoint_requests)
    assert here.total.offered > 100


def test_policies_meet_the_same_requests_with_the_same_seed_and_others_with_another() -> None:
    result = compare(
        [Arm("a", "round_robin"), Arm("b", "least_request")], one_pool().run, [1, 2], reference="a", workers=2
    )
    a, b = result.arms
    for first, second in zip(a.runs, b.runs, strict=True):
        assert (first.total.offered, first.total.input_tokens) == (second.total.offered, second.total.input_tokens)
    assert a.runs[0].total.input_tokens != a.runs[1].total.input_tokens


def test_facts_say_what_a_file_offers_and_what_it_could_not(trace_file: str) -> None:
    scenario = Scenario(reference_fleet("one-pool"), Shaped(FileTrace(trace_file), speed=2.0))
    facts = scenario.facts(0)
    assert (facts.source, facts.requests, facts.speed) == ("trace.jsonl", 4, 2.0)
    assert (facts.input_tokens, facts.output_tokens) == (3624, 117)
    assert facts.skipped_rows == (("bad_json", 1),)
    slower = scenario.at_speed(1.0).facts(0)
    assert slower.span_s == pytest.approx(2 * facts.span_s)
    assert scenario.run(Arm("x", "round_robin"), 0).total.offered == 4


def test_names_are_given_to_requests_that_have_none(trace_file: str) -> None:
    rules = (Assignment("workload_class", {"long_context": 1.0}, only_blank=True),)
    scenario = Scenario(reference_fleet("one-pool"), Shaped(FileTrace(trace_file), names=rules))
    assert set(scenario.run(Arm("x", "round_robin"), 0).by_class) == {"long_context"}


def test_a_trace_without_a_usable_row_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text(TRACE.splitlines()[0].replace('"output_length": 40', '"output_length": 0') + "\n")
    scenario = Scenario(reference_fleet("one-pool"), Shaped(FileTrace(str(path))))
    with pytest.raises(TraceError, match="no usable request"):
        scenario.facts(0)


def test_a_plan_replaces_the_placement(
    tmp_path: Path, report_maker: Callable[..., ReportData], comparison_maker: Callable[..., Comparison]
) -> None:
    scenario = one_pool()
    plan = report_maker(comparison_maker(("x",), seeds=1)).plan
    assert isinstance(plan, PlanDocument)
    config = scenario.fleet.placement[0]
    two = PlannedReplicas(config.site, config.config, "assistant@v1", "H100", 1, 2)
    plan = dataclasses.replace(plan, fleet="one-pool", replicas=(two,), moves=(), unmet=())
    path = tmp_path / "plan.json"
    write_plan(plan, path)
    run = scenario.run(Arm("planned", "round_robin", plan_path=str(path)), 0)
    assert len(run.endpoint_requests) == 2
    assert len(scenario.run(Arm("running", "round_robin"), 0).endpoint_requests) == 8
    foreign = dataclasses.replace(plan, replicas=(dataclasses.replace(two, site="Mars"),))
    write_plan(foreign, path)
    with pytest.raises(InputError, match=r"replicas\[0\]\.site.*no such site.*Mars"):
        carried_out(scenario.fleet, str(path))


def test_nothing_placed_is_refused() -> None:
    fleet = dataclasses.replace(reference_fleet("one-pool"), placement=())
    with pytest.raises(InputError, match="no replica is placed"):
        carried_out(fleet, None)


def test_a_missing_model_store_is_refused(tmp_path: Path) -> None:
    arm = Arm("x", "predicted_latency_llmd", predictor_path=str(tmp_path / "none"))
    with pytest.raises(ModelError, match="no model"):
        one_pool().run(arm, 0)


@pytest.mark.parametrize("fleet_name", ["one-pool", "mixed-pool", "four-sites"])
def test_streams_of_a_fleet_are_permitted_and_keep_the_rate(fleet_name: str) -> None:
    fleet = reference_fleet(fleet_name)
    streams = fleet_streams(fleet, PROFILES["chat"], 12.0)
    assert sum(stream.rate_per_s for stream in streams) == pytest.approx(12.0)
    sites = {site.name: site for site in fleet.sites}
    for stream in streams:
        tenant = fleet.tenant(stream.assign.tenant)
        assert not tenant.models or stream.assign.model in tenant.models
        assert {name for name, _ in stream.assign.origins} <= set(sites)
    assert {stream.assign.tenant for stream in streams} == {tenant.name for tenant in fleet.tenants}
    with pytest.raises(SettingError, match="unknown class"):
        fleet_streams(fleet, PROFILES["chat"], 12.0, "nobody")


def test_load_search_on_the_real_simulator_ends_near_the_target() -> None:
    scenario, trials = one_pool("document", rate_per_s=4.0, duration_s=60.0), []
    search = LoadSearch(0.65, tolerance=0.04, max_trials=14)
    with RunPool(1) as pool:
        arm = Arm("round_robin", "round_robin")
        level = find_load(scenario, arm, [1], search, pool, on_trial=lambda *trial: trials.append(trial))
    assert level.reached
    assert tuple(trials) == level.trials
    again = scenario.at_speed(level.speed).run(arm, 1)
    assert again.total.attainment_offered == pytest.approx(level.attainment)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"speed": 1}, "unknown run setting"),
        ({"seed": 1}, "unknown run setting"),
        ({"step_noise": 2.0}, "0 to 0.5"),
        ({"step_noise": "much"}, "a number"),
        ({"retries": True}, "a number"),
        ({"retries": 1.5}, "whole number"),
    ],
)
def test_run_settings_by_name_are_checked(values: dict[str, Setting], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        sim_settings(values)


def test_run_settings_keep_what_is_not_named() -> None:
    base = SimSettings(step_noise=0.1)
    assert sim_settings({"retries": 2}, base) == dataclasses.replace(base, retries=2)
