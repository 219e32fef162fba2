"""The referee: what a router chose is taken apart, told to another simulator and judged without loss."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.bench_referee import judged_rows
from benchmarks.proof.referee import replay
from benchmarks.proof.referee.assignment import Assignment, Choices, Dispatch, assigned
from benchmarks.proof.referee.figures import figures
from benchmarks.proof.referee.first_requests import FirstRequests
from benchmarks.proof.referee.order import pairs, ranked, tau
from benchmarks.proof.referee.replay import APART_MS, replayed, trace_lines
from benchmarks.proof.referee.step_curves import common, same_work, write_profile
from benchmarks.proof.referee.tables import Judged, order_table, pair_table
from benchmarks.proof.runs import Cell
from benchmarks.proof.scenarios import CLASSES, four_sites_names
from data.errors import SettingError, TraceError
from data.fleet.reference import reference_fleet
from data.synth.profiles import PROFILES
from data.types import Request
from planner.arm import Arm
from planner.fleet_streams import fleet_streams
from planner.scenario import Scenario, carried_out
from planner.sim.run import simulate
from planner.sim.settings import SimSettings
from planner.sim.step_times import StepTimes
from planner.trace_source import FileTrace, Shaped, SynthTrace
from router.endpoints import EndpointSpec, EndpointTable
from router.registry import make_policy

QUIET = SimSettings(step_noise=0.0)
POLICY = Arm("kv_cost_dynamo", "kv_cost_dynamo")


@pytest.fixture
def trace(tmp_path: Path) -> FileTrace:
    """200 requests in 20 s, half of them turns of a few conversations."""
    rng, path = np.random.default_rng(3), tmp_path / "trace.jsonl"
    with path.open("w") as lines:
        for number in range(200):
            length = int(rng.integers(100, 12_000))
            talk = 1000 * int(rng.integers(1, 9)) if number % 2 else 100_000 * (number + 1)
            row = {
                "timestamp": 100 * number,
                "input_length": length,
                "output_length": int(rng.integers(1, 120)),
                "hash_ids": [talk + block for block in range(-(-length // 512))],
            }
            lines.write(json.dumps(row) + "\n")
    return FileTrace(str(path), "mooncake")


@pytest.fixture
def mixed(trace: FileTrace) -> Scenario:
    return Scenario(reference_fleet("mixed-pool"), Shaped(trace, classes=CLASSES), QUIET)


def specs_of(scenario: Scenario) -> list[EndpointSpec]:
    return list(carried_out(scenario.fleet, None).specs)


def ran(scenario: Scenario, specs: list[EndpointSpec] | None = None) -> Assignment:
    return assigned(scenario, specs or specs_of(scenario), POLICY, 1)


def test_every_worker_alone_serves_its_part_as_the_fleet_did(mixed: Scenario) -> None:
    found = ran(mixed)
    for endpoint, spec in enumerate(found.specs):
        rows, ends, table = found.rows(endpoint), Choices(), EndpointTable([spec])
        part = [
            replace(found.dispatches[row].request, arrival_s=found.dispatches[row].at_engine_s) for row in rows
        ]
        assert part
        policy = make_policy("round_robin", {}, table, 1)
        simulate(mixed.fleet, [spec], part, policy, QUIET, table=table, sink=ends)
        alone = [[ends.outcomes[one.request_id][what] for what in ("ttft_s", "e2e_s")] for one in part]
        np.testing.assert_allclose(alone, found.times[rows], rtol=1e-9)
        held = [ends.outcomes[one.request_id]["cached_tokens"] for one in part]
        assert held == found.cached[rows].tolist()
    assert found.cached.sum() > 0


@pytest.mark.parametrize("fleet", ["mixed-pool", "four-sites"])
def test_figures_are_those_of_the_run_network_included(fleet: str, trace: FileTrace) -> None:
    names = four_sites_names() if fleet == "four-sites" else ()
    scenario = Scenario(reference_fleet(fleet), Shaped(trace, 2.0, names, CLASSES), QUIET)
    found, total = ran(scenario), scenario.run(POLICY, 1).total
    said = figures(found, found.times, found.hit_rate)
    assert said["goodput"] == pytest.approx(total.goodput_tokens_per_s)
    assert said["attained"] == pytest.approx(total.attainment_offered)
    assert 0.0 < said["attained"] < 1.0
    assert said["ttft_p50"] == pytest.approx(total.ttft.p50, rel=0.05)
    assert any(one.network_s > 0 for one in found.dispatches) == (fleet == "four-sites")


def test_what_never_completed_is_not_good(mixed: Scenario) -> None:
    found = ran(mixed)
    lost = found.times.copy()
    lost[::2] = np.nan
    before, after = figures(found, found.times, 0.0), figures(found, lost, 0.0)
    assert after["completed"] == before["completed"] - len(lost[::2])
    assert 0.0 < after["attained"] < before["attained"]


def test_closed_loops_and_repeats_have_no_arrivals_of_their_own(mixed: Scenario) -> None:
    streams = fleet_streams(mixed.fleet, PROFILES["agentic"], 1.0)
    talks = replace(mixed, trace=Shaped(SynthTrace(streams, 30.0, "sessions")))
    with pytest.raises(TraceError, match="an open loop"):
        assigned(talks, specs_of(talks), POLICY, 1)
    with pytest.raises(SettingError, match="retries"):
        ran(replace(mixed, settings=replace(QUIET, retries=1)))


def dispatch(at_s: float, tokens: int, hashes: tuple[int, ...] = ()) -> Dispatch:
    return Dispatch(Request(0, at_s, tokens, 5, 5, hashes, 512), 0, at_s, 0.0)


def test_a_trace_is_told_with_small_block_numbers_and_arrivals_apart() -> None:
    far = 2**63 + 7
    told = list(
        trace_lines([dispatch(5.0, 1000, (far, 1)), dispatch(5.0, 1100, (far, 1, 2)), dispatch(6.0, 1025)])
    )
    assert [line["hash_ids"] for line in told] == [[1, 2], [1, 2, 3], [4, 5, 6]]
    assert [line["timestamp"] for line in told] == pytest.approx([0.0, APART_MS, 1000.0])
    assert told[1]["timestamp"] > told[0]["timestamp"]


def test_the_first_requests_are_the_first_ones(mixed: Scenario, trace: FileTrace) -> None:
    whole = [one for batch in trace.batches(1) for one in batch.rows()]
    first = [one for batch in FirstRequests(trace, 30).batches(1) for one in batch.rows()]
    assert first == whole[:30]


def looked_up(path: Path, tokens: int, kv: float, batch: int) -> tuple[float, float]:
    """Prefill and decode from a table as its reader interpolates, seconds."""
    table = np.load(path)
    prefill_ms = np.interp(tokens, table["prefill_isl"], table["prefill_ttft_ms"])
    contexts, held = table["decode_context_length"], table["decode_active_kv_tokens"]
    by_context = [np.interp(kv, held, column) for column in table["decode_itl"].T]
    return float(prefill_ms) / 1e3, float(np.interp(kv / batch, contexts, by_context)) / 1e3


def test_times_that_both_can_hold_are_the_same_in_mixed_steps(mixed: Scenario, tmp_path: Path) -> None:
    for spec in {one.gpu_type: common(one) for one in specs_of(mixed)}.values():
        write_profile(tmp_path / "table.npz", spec)
        prefill_s, decode_s = looked_up(tmp_path / "table.npz", 3000, 40_000, 20)
        mine = StepTimes(spec.times).mixed_step_s([(1000, 0), (2000, 7000)], 20, 40_000)
        assert prefill_s + decode_s == pytest.approx(mine, rel=2e-3)


def test_the_table_of_a_catalog_engine_is_that_of_cold_prompts(mixed: Scenario, tmp_path: Path) -> None:
    spec = specs_of(mixed)[0]
    write_profile(tmp_path / "table.npz", spec)
    for tokens in (64, 700, 5000, 8192):
        prefill_s, _ = looked_up(tmp_path / "table.npz", tokens, 1000, 1)
        assert prefill_s == pytest.approx(spec.times.prefill_s(tokens), rel=2e-3)
    write_profile(tmp_path / "table.npz", spec, prefill=2.0, fixed=False)
    doubled, _ = looked_up(tmp_path / "table.npz", 8192, 1000, 1)
    assert doubled == pytest.approx(2.0 * (spec.times.prefill_s(8192) - spec.times.p0))


def test_same_work_pays_for_attention_that_the_table_forgets(mixed: Scenario) -> None:
    spec = specs_of(mixed)[0]
    times, budget = spec.times, spec.batch_token_budget
    assert same_work(spec, [(budget, 0), (100, 0)]) == pytest.approx(1.0)
    assert same_work(spec, []) == 1.0
    factor, prompts = same_work(spec, [(3 * budget, 0), (500, 20_000)]), [(3 * budget, 0), (500, 20_000)]
    ours = sum(times.prefill_s(new, held) - times.p0 for new, held in prompts)
    table = 3 * (times.prefill_s(budget) - times.p0) + times.prefill_s(500) - times.p0
    assert factor == pytest.approx(ours / table)
    assert factor > 1.1


def test_only_what_both_are_sure_of_contradicts() -> None:
    ours = {"a": [10.0, 11.0, 10.5, 10.2, 10.8], "b": [9.0, 10.0, 9.5, 9.2, 9.8], "c": [5.0, 5.1, 5.2, 5.3, 5.4]}
    noisy = {**ours, "a": [9.0, 10.1, 9.4, 9.1, 9.7]}
    turned = {"a": ours["b"], "b": ours["a"], "c": ours["c"]}
    assert not any(pair.swapped for pair in pairs(ours, ours))
    unsure = [pair for pair in pairs(ours, noisy) if pair.swapped]
    assert [(pair.first, pair.second, pair.contradicted) for pair in unsure] == [("a", "b", False)]
    sure = [pair for pair in pairs(ours, turned) if pair.contradicted]
    assert [(pair.first, pair.second) for pair in sure] == [("a", "b")]
    assert ranked(ours) == ["a", "b", "c"]
    assert tau(ours, ours).mean == pytest.approx(1.0)
    assert tau(ours, turned).mean == pytest.approx(1 / 3)
    assert tau(ours, {"a": ours["c"], "b": ours["b"], "c": ours["a"]}).mean == pytest.approx(-1.0)


ANSWER = """
import json, sys
asked = json.load(sys.stdin)["workers"]
lines = [[json.loads(line) for line in open(one["trace"])] for one in asked]
print("a line of the library")
print(json.dumps({"workers": [
    [[row["input_length"] + EXTRA, row["output_length"], row["input_length"] // 2, 0.5 + number, 2.0 + number]
     for number, row in enumerate(one)] for one in lines]}))
"""


@pytest.mark.parametrize("extra", [0, 1])
def test_answers_go_back_to_the_requests_they_are_of(
    mixed: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: int
) -> None:
    program = tmp_path / "program.py"
    program.write_text(ANSWER.replace("EXTRA", str(extra)))
    monkeypatch.setattr(replay, "PROGRAM", program)
    found = ran(mixed)
    if extra:
        with pytest.raises(SettingError, match="other requests"):
            replayed(sys.executable, found, "same_work")
        return
    served = replayed(sys.executable, found, "cold_prompt")
    for endpoint in range(len(found.specs)):
        rows = found.rows(endpoint)
        assert served.times[rows].tolist() == [[0.5 + number, 2.0 + number] for number in range(len(rows))]
    assert served.hit_rate == pytest.approx(0.5, abs=0.001)


def judged(theirs: dict[str, list[float]], seeds: int) -> Judged:
    """TokenPilot, a near peer and a far one; only Goodput is looked at."""
    ours = {"tokenpilot": [110.0, 111, 112, 113, 114], "near": [100.0, 101, 102, 103, 104], "far": [50.0] * 5}
    cell = Cell("mixed-pool", "trace", Scenario(reference_fleet("mixed-pool"), Shaped(FileTrace("")), QUIET), 1.5)

    def scores(values: dict[str, list[float]]) -> dict[str, list[dict[str, float]]]:
        return {arm: [{"goodput": value} for value in found[:seeds]] for arm, found in values.items()}

    return Judged(cell, "catalog/same_work", scores(ours), scores(theirs))


def test_a_contradiction_misses_the_target_and_one_seed_judges_nothing() -> None:
    turned = {"tokenpilot": [90.0, 91, 92, 93, 94], "near": [100.0, 101, 102, 103, 104], "far": [60.0] * 5}
    first, *others = judged_rows(judged(turned, 5))
    assert (first["value"], first["met"], first["decided"], first["swapped"]) == (1.0, False, 3, 1)
    rows = {row["id"].rsplit("/", 1)[1]: row for row in others}
    assert rows["lead_ours"]["value"] == pytest.approx(0.098, abs=1e-3)
    assert rows["lead_theirs"]["value"] == pytest.approx(-0.098, abs=1e-3)
    assert (rows["far"]["value"], rows["far"]["reference"], rows["far"]["ratio"]) == (60.0, 50.0, 1.2)
    single = next(iter(judged_rows(judged(turned, 1))))
    assert (single["value"], single["target"], single["met"]) == (0.0, None, None)


def test_the_pairs_that_swap_are_told() -> None:
    turned = {"tokenpilot": [90.0, 91, 92, 93, 94], "near": [100.0, 101, 102, 103, 104], "far": [60.0] * 5}
    one = judged(turned, 5)
    assert one.order == ["tokenpilot", "near", "far"]
    assert (one.rank("tokenpilot", True), one.rank("tokenpilot", False)) == (1, 2)
    assert "| `tokenpilot` | `near` | 10.0 ± 0.0 | -10.0 ± 0.0 |" in pair_table(one)
    assert "No pair swaps" in pair_table(replace(one, theirs=one.ours))
    assert "| 3 | 3 | 1 | 1 | +9.8%" in order_table([one])
