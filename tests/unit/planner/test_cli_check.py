"""``tokenfleet check`` and ``tokenfleet schema`` as a user runs them."""

import json

import pytest
from click.testing import CliRunner

from data.fleet.reference import reference_fleet, reference_path
from data.plan import PlanDocument, PlannedReplicas, PlanStatus
from data.plan_io import plan_to_json, write_plan
from planner.cli.main import cli


def run(*arguments):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def running_plan(fleet):
    """The plan that keeps what stands."""
    rows = []
    for placed in fleet.placement:
        config = fleet.config(placed.config)
        rows.append(
            PlannedReplicas(
                placed.site, config.name, config.model, config.gpu_type, config.tensor_parallel, placed.replicas
            )
        )
    times = dict.fromkeys(("made_at", "valid_from", "valid_until"), "2026-01-31T12:00:00Z")
    return PlanDocument(
        plan_id="p",
        parent_id=None,
        **times,
        fleet=fleet.name,
        input_digests={},
        status=PlanStatus.KEPT_LAST,
        objective=0.0,
        goodput_tokens_per_s=0.0,
        bound=0.0,
        bound_name="none",
        replicas=tuple(rows),
    )


def test_sound_fleets_by_name_and_by_path():
    result = run("check", "one-pool", reference_path("four-sites"))
    assert result.exit_code == 0
    assert "one-pool: ok: fleet one-pool: 1 sites, 8 GPUs" in result.output
    assert "ok: fleet four-sites: 4 sites, 76 GPUs, 4 models, 15 configs, 3 classes, 6 tenants" in result.output


def test_every_fault_of_a_fleet_file_with_its_line_and_exit_code_2(tmp_path):
    path = tmp_path / "bad.yaml"
    text = reference_path("one-pool").read_text()
    path.write_text(text.replace("count: 8", "count: -8").replace("ttft_s: 1.0", "ttfs_s: 1.0"))
    result = run("check", path, "mixed-pool")
    assert result.exit_code == 2
    assert f"{path}: 2 faults: unusable fleet" in result.output
    assert f"{path}:8: gpu_pools[0].count: out of range (got -8); expected 0 to 1000000" in result.output
    assert "ttfs_s: unknown key; expected 'ttft_s'?" in result.output
    assert "mixed-pool: ok" in result.output


def test_machine_output(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(reference_path("one-pool").read_text().replace("count: 8", "count: -8"))
    result = run("check", "--json", path)
    assert result.exit_code == 2
    report = json.loads(result.output)
    assert report["ok"] is False
    (problem,) = report["targets"][0]["problems"]
    assert problem == {
        "source": str(path),
        "line": 8,
        "field": "gpu_pools[0].count",
        "problem": "out of range",
        "value": -8,
        "expected": "0 to 1000000",
    }


def test_f100_unstated_gpus_are_a_notice_and_strict_refuses_them(tmp_path):
    path = tmp_path / "unstated.yaml"
    path.write_text(
        reference_path("mixed-pool").read_text().replace("  - {site: main, gpu_type: A100, count: 3}\n", "")
    )
    result = run("check", path)
    assert result.exit_code == 0
    assert "notice: the number of A100 at main is not stated: replicas there stay as they are" in result.output
    assert run("check", "--strict", path).exit_code == 2


def test_a_target_that_is_not_there():
    result = run("check", "four-site")
    assert result.exit_code == 2
    assert (
        "no such file or built-in fleet (got 'four-site'); expected a fleet file, or 'four-sites'?"
        in result.output
    )
    assert run("check").exit_code == 2


def test_a_plan_alone_and_against_its_fleet(tmp_path):
    fleet = reference_fleet("mixed-pool")
    path = tmp_path / "plan.json"
    write_plan(running_plan(fleet), path)
    alone = run("check", path)
    assert alone.exit_code == 0
    assert "plan p (kept_last) for mixed-pool: 9 replicas on 9 GPUs" in alone.output
    assert "give --fleet" in alone.output
    assert run("check", path, "--fleet", "mixed-pool").exit_code == 0


def test_f101_a_plan_that_uses_more_gpus_than_there_are_is_refused(tmp_path):
    fleet = reference_fleet("mixed-pool")
    document = json.loads(plan_to_json(running_plan(fleet)))
    document["replicas"][0]["replicas"] = 5
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    result = run("check", path, "--fleet", "mixed-pool")
    assert result.exit_code == 2
    assert "5 GPUs planned, 4 may be used" in result.output


def test_a_plan_for_another_fleet(tmp_path):
    path = tmp_path / "plan.json"
    write_plan(running_plan(reference_fleet("mixed-pool")), path)
    result = run("check", path, "--fleet", "one-pool")
    assert result.exit_code == 2
    assert "fleet: the plan is for another fleet (got 'mixed-pool'); expected one-pool" in result.output


def test_a_broken_plan_names_the_field(tmp_path):
    path = tmp_path / "plan.json"
    document = json.loads(plan_to_json(running_plan(reference_fleet("one-pool"))))
    path.write_text(json.dumps(document | {"bound": "high"}))
    result = run("check", path)
    assert result.exit_code == 2
    assert f"{path}: bound: wrong value (got 'high'); expected a number" in result.output


def test_a_trace_with_bad_rows_says_which(tmp_path):
    path = tmp_path / "trace.jsonl"
    good = [
        {"timestamp": 1000 * i, "input_length": 600, "output_length": 5, "hash_ids": [i, 900 + i]}
        for i in range(9)
    ]
    lines = [json.dumps(row) for row in good]
    path.write_text("\n".join(lines) + "\n")
    result = run("check", path)
    assert result.exit_code == 0, result.output
    assert "mooncake trace: 9 of 9 rows usable" in result.output
    path.write_text("\n".join([*lines[:4], "{broken", *lines[4:]]) + "\n")
    result = run("check", path)
    assert result.exit_code == 2
    assert f"{path}:5: bad_json: 1 rows refused" in result.output


def test_a_trace_of_failed_requests_is_well_formed_but_has_no_usable_row(tmp_path):
    path = tmp_path / "failed.jsonl"
    rows = [
        {"timestamp": 1000 * i, "input_length": 600, "output_length": 0, "hash_ids": [i, 90 + i]} for i in range(4)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = run("check", path)
    assert result.exit_code == 2
    assert "notice: zero_output: 4 rows refused" in result.output
    assert f"{path}: no usable row" in result.output


def test_a_file_of_no_known_kind(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello\n")
    result = run("check", path)
    assert result.exit_code == 2
    assert "fits no trace format" in result.output


def test_a_folder_without_a_model(tmp_path):
    result = run("check", tmp_path)
    assert result.exit_code == 2
    assert "unusable model" in result.output


@pytest.mark.parametrize(("document", "title"), [("fleet", "TokenFleet fleet file"), ("plan", "TokenFleet plan")])
def test_schema_prints_json_schema(document, title):
    result = run("schema", document)
    assert result.exit_code == 0
    assert json.loads(result.output)["title"] == title
    assert run("schema", document, "--json").output == result.output
    assert run("schema", "model").exit_code == 2
