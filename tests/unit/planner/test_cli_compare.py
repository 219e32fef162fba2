"""``tokenfleet compare``: tables, files, machine output, load levels, plans beside the running placement."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from data.plan import PlanDocument, PlannedReplicas, PlanStatus
from data.plan_io import write_plan
from planner.cli.main import main

BASE = ["compare", "--fleet", "one-pool", "--synth", "chat:5:20", "--workers", "1"]


def run(argv: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    try:
        main(argv)
        code = 0
    except SystemExit as left:
        code = int(left.code or 0)
    seen = capsys.readouterr()
    return code, seen.out, seen.err


def plan_file(path: Path, replicas: int, second: int = 0) -> str:
    placed = PlannedReplicas("main", "assistant-h100", "assistant@v1", "H100", 1, replicas)
    stamp = "2026-01-01T00:00:00Z"
    plan = PlanDocument(
        plan_id="plan-1", parent_id=None, made_at=stamp, valid_from=f"2026-01-01T00:00:{second:02d}Z",
        valid_until="2026-01-02T00:00:00Z",
        fleet="one-pool", input_digests={}, status=PlanStatus.GREEDY, objective=1.0, goodput_tokens_per_s=1.0,
        bound=1.0, bound_name="none", replicas=(placed,),
    )  # fmt: skip
    write_plan(plan, path)
    return str(path)


def test_tables_report_and_markdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    html, markdown = tmp_path / "r.html", tmp_path / "t.md"
    argv = [*BASE, "--policies", "round_robin,least_request", "--html", str(html), "--markdown", str(markdown)]
    code, out, _ = run(argv, capsys)
    assert code == 0
    assert "Paired difference to round_robin" in out
    assert "95 % intervals" in " ".join(out.split())
    assert "difference-section" in html.read_text()
    assert markdown.read_text().startswith("### Goodput by policy")


def test_machine_output_has_every_arm_and_the_load_level(capsys: pytest.CaptureFixture[str]) -> None:
    policies = "least_request,round_robin,power_of_two"
    argv = [*BASE[:-4], "--synth", "document:4:40", "--workers", "1", "--policies", policies, "--seeds", "2"]
    options = ["--reference", "least_request", "--attainment", "0.65", "--at", "round_robin", "--json"]
    code, out, err = run([*argv, *options], capsys)
    assert code == 0, err
    values = json.loads(out)
    assert {arm["name"] for arm in values["arms"]} == {"least_request", "round_robin", "power_of_two"}
    assert values["reference"] == "least_request"
    assert values["seeds"] == [0, 1]
    assert "need at least 5" in values["notes"][0]
    level = values["load_level"]
    chosen = next(arm for arm in values["arms"] if arm["name"] == "round_robin")
    assert chosen["figures"]["attainment_offered"]["mean"] == pytest.approx(level["attainment"])
    assert [level["speed"], level["attainment"]] in level["trials"]


def test_plans_of_a_folder_are_carried_out_in_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four replicas, from 10 s on eight: GPU time counts from each start, and requests go to the new ones."""
    folder = tmp_path / "plans"
    folder.mkdir()
    first, second = plan_file(folder / "b.json", 4), plan_file(folder / "a.json", 8, second=10)
    base = ["compare", "--fleet", "one-pool", "--synth", "chat:5:120", "--workers", "1"]
    argv = [*base, "--policies", "round_robin", "--seeds", "1", "--json"]
    code, out, err = run([*argv, "--plan", first, "--plan", second, "--plan", str(folder)], capsys)
    assert code == 0, err
    arms = {arm["name"]: arm["figures"] for arm in json.loads(out)["arms"]}
    few, many, both = (arms[f"round_robin on {name}"]["gpu_hours"]["mean"] for name in ("b", "a", "plans"))
    assert both == pytest.approx(many - 10 / 3600 * 4, rel=0.01)
    assert few < both < many
    (folder / "a.json").unlink()
    (folder / "b.json").unlink()
    code, _, err = run([*argv, "--plan", str(folder)], capsys)
    assert code == 2
    assert "no plan in the folder" in err


def test_a_plan_beside_the_running_placement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_file(tmp_path / "half.json", 4)
    argv = [*BASE, "--policies", "least_request", "--plan", "running", "--plan", plan, "--seeds", "2", "--json"]
    code, out, err = run(argv, capsys)
    assert code == 0, err
    hours = {arm["name"]: arm["figures"]["gpu_hours"]["mean"] for arm in json.loads(out)["arms"]}
    assert set(hours) == {"least_request on running", "least_request on half"}
    ratio = hours["least_request on running"] / hours["least_request on half"]
    assert ratio == pytest.approx(2, rel=0.05)


def test_settings_of_a_policy_make_another_arm(capsys: pytest.CaptureFixture[str]) -> None:
    policies = "cache_aware_sglang,cache_aware_sglang:cache_threshold=0.9"
    code, out, err = run([*BASE, "--policies", policies, "--seeds", "1", "--json"], capsys)
    assert code == 0, err
    settings = {arm["name"]: arm["settings"] for arm in json.loads(out)["arms"]}
    assert settings["cache_aware_sglang:cache_threshold=0.9"] == {"cache_threshold": 0.9}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--policies", "round_robin,"], "unknown policy"),
        (["--policies", "round_robin,round_robin"], "same name"),
        (["--reference", "nobody"], "--reference"),
        (["--attainment", "0.9", "--at", "nobody"], "--at"),
        (["--attainment", "1.5"], "target"),
        (["--seeds", "0"], "--seeds"),
        (["--workers", "0"], "--workers"),
        (["--plan", "missing.json"], "missing.json"),
        (["--markdown", "no/such/t.md"], "no such folder"),
    ],
)
def test_wrong_input_exits_2_before_anything_runs(
    change: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run([*BASE, "--policies", "round_robin,random", *change], capsys)
    assert code == 2
    assert out == ""
    assert words in err
    assert "comparing" not in err


def test_a_target_out_of_reach_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run([*BASE, "--policies", "least_request", "--seeds", "1", "--attainment", "0.02"], capsys)
    assert code == 2
    assert "stays above the target" in err
