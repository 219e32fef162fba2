"""The plan document on disk: strict reading, atomic writing, published schema."""

import json
from dataclasses import replace

import jsonschema
import pytest

from data.errors import PlanFileError
from data.plan import (
    Move,
    PlanDocument,
    PlannedReplicas,
    PlanStatus,
    PoolSplit,
    ShadowPrice,
    TrafficShare,
    UnmetDemand,
)
from data.plan_io import plan_from_json, plan_schema, plan_to_json, read_plan, write_plan


@pytest.fixture
def plan():
    return PlanDocument(
        plan_id="p-1",
        parent_id=None,
        made_at="2026-01-31T12:00:00Z",
        valid_from="2026-01-31T12:05:00Z",
        valid_until="2026-01-31T13:05:00.5+00:00",
        fleet="four-sites",
        input_digests={"fleet": "ab12"},
        status=PlanStatus.FEASIBLE_LIMIT,
        objective=10.5,
        goodput_tokens_per_s=9.0,
        bound=11.0,
        bound_name="linked LP",
        replicas=(
            PlannedReplicas("B", "coder-h100", "coder@v1", "H100", 1, 3),
            PlannedReplicas("C", "coder-h200", "coder@v1", "H200", 1, 2, prewarmed=1),
        ),
        shares=(
            TrafficShare("coder@v1", "batch", "shop", "A", "B", 0.6),
            TrafficShare("coder@v1", "batch", "shop", "A", "C", 0.4),
        ),
        splits=(PoolSplit("B", "coder@v1", "H100", "batch", 2, 900.0, {"shop": 400.0}),),
        unmet=(UnmetDemand("demand", "coder@v1", "batch", "shop", 3.0, "tokens/s", "no GPUs"),),
        moves=(
            Move("C", "coder-h200", 2, 12.0, "idle GPUs", 0.0, 5.0, None, ("H200 pool of C",), (0.0, 36.5), 36.0),
        ),
        prices=(ShadowPrice("gpus", "C", "H200", 1.0, "GPU", 12.5, 11.0, "0.5 replicas of a promise"),),
    )


def faults(document):
    text = document if isinstance(document, str | bytes) else json.dumps(document)
    with pytest.raises(PlanFileError) as caught:
        plan_from_json(text, "plan.json")
    assert caught.value.problems[0] is caught.value
    return [str(problem) for problem in caught.value.problems]


def test_a_plan_survives_the_file(plan, tmp_path):
    path = tmp_path / "plan.json"
    write_plan(plan, path)
    assert read_plan(path) == plan
    first = path.read_bytes()
    write_plan(read_plan(path), path)
    assert path.read_bytes() == first
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]
    assert read_plan(path).gap == pytest.approx(0.5 / 11)


def test_a_failed_write_keeps_the_old_plan_and_leaves_nothing_behind(plan, tmp_path):
    path = tmp_path / "plan.json"
    write_plan(plan, path)
    before = path.read_bytes()
    with pytest.raises(PlanFileError, match=r"bound: not a finite number"):
        write_plan(replace(plan, bound=float("inf")), path)
    with pytest.raises(PlanFileError, match=r"replicas.0..replicas: out of range .got -1."):
        write_plan(replace(plan, replicas=(replace(plan.replicas[0], replicas=-1),)), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]


def test_every_fault_has_its_path(plan):
    document = json.loads(plan_to_json(plan))
    document["replicas"][1]["replicas"] = -2
    document["shares"][0]["share"] = 1.5
    document["shares"][1]["sites"] = "B"
    document["status"] = "optimum"
    del document["fleet"]
    document["splits"][0]["tenant_quota_tokens_per_s"]["shop"] = "x"
    assert faults(document) == [
        "plan.json: fleet: missing key; expected a text",
        "plan.json: replicas[1].replicas: out of range (got -2); expected 0 to 1000000",
        "plan.json: shares[0].share: out of range (got 1.5); expected 0 to 1",
        "plan.json: shares[1].sites: unknown key; expected 'site'?",
        "plan.json: splits[0].tenant_quota_tokens_per_s.shop: wrong value (got 'x'); expected a number, 0 or more",
        "plan.json: status: wrong value (got 'optimum'); expected 'optimal'? "
        "(one of feasible_limit, greedy, infeasible, kept_last, optimal)",
    ]


def test_another_schema_version_is_the_only_fault_named(plan):
    document = json.loads(plan_to_json(plan)) | {"schema_version": 2, "news": 1}
    assert faults(document) == [
        "plan.json: schema_version: another version of the plan document (got 2); expected 1"
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"valid_until": "2026-01-31T12:00:00Z"}, "valid_until: ends before it begins"),
        ({"made_at": "2026-02-31T12:00:00Z"}, "made_at: no such time"),
        ({"made_at": "yesterday"}, "made_at: not allowed here (got 'yesterday'); expected a UTC time"),
        ({"made_at": "2026-01-31T12:00:00+02:00"}, "made_at: not allowed here"),
        ({"plan_id": ""}, "plan_id: not allowed here"),
        ({"objective": None}, "objective: wrong value (got 'null')"),
        ({"solve_s": -1}, "solve_s: out of range"),
        ({"parent_id": 4}, "parent_id: wrong value (got 4)"),
        ({"input_digests": {"fleet": 3}}, "input_digests.fleet: wrong value (got 3)"),
    ],
)
def test_single_fields(plan, change, message):
    (found,) = faults(json.loads(plan_to_json(plan)) | change)
    assert message in found


def test_rows_must_fit_together(plan):
    twice = replace(plan, replicas=(plan.replicas[0], plan.replicas[0]))
    with pytest.raises(
        PlanFileError, match=r"replicas.1.: second row of a site and config .got 'B / coder-h100'."
    ):
        plan_to_json(twice)
    much = replace(plan, shares=(plan.shares[0], replace(plan.shares[1], share=0.5)))
    with pytest.raises(
        PlanFileError, match=r"shares.1..share: shares of coder@v1 / batch / shop / A add up to 1.1"
    ):
        plan_to_json(much)
    with pytest.raises(PlanFileError, match=r"moves.0..change: a move that changes nothing"):
        plan_to_json(replace(plan, moves=(replace(plan.moves[0], change=0),)))


@pytest.mark.parametrize(
    ("begin_s", "message"),
    [
        ((1.0,), r"moves.0..begin_s: wrong number of times .got 1.; expected 2, one a replica"),
        ((2.0, 1.0), r"moves.0..begin_s: not in rising order"),
        ((-1.0, 0.0), r"moves.0..begin_s.*out of range .got -1"),
    ],
)
def test_moments_of_a_move_must_fit_it(plan, begin_s, message):
    with pytest.raises(PlanFileError, match=message):
        plan_to_json(replace(plan, moves=(replace(plan.moves[0], begin_s=begin_s),)))


def test_a_plan_without_the_newer_fields_is_read(plan):
    document = json.loads(plan_to_json(plan))
    for name in ("lost_cache", "gain", "gives_up", "binding", "begin_s", "lasts_s"):
        del document["moves"][0][name]
    del document["prices"]
    old = plan_from_json(json.dumps(document))
    assert old.moves == (Move("C", "coder-h200", 2, 12.0, "idle GPUs"),)
    assert old.prices == ()


def test_rounded_shares_may_exceed_one_by_a_hair(plan):
    thirds = tuple(replace(plan.shares[0], site=site, share=0.33333344) for site in ("B", "C", "D"))
    assert plan_from_json(plan_to_json(replace(plan, shares=thirds))).shares == thirds


def test_a_folder_that_is_not_there(plan, tmp_path):
    with pytest.raises(PlanFileError, match=r"gone/plan.json: cannot be written: No such file"):
        write_plan(plan, tmp_path / "gone" / "plan.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "plan.json:1: not valid JSON: Expecting value"),
        (b'{"a": 1,\n "b" 2}', "plan.json:2: not valid JSON"),
        (b"\xff\xfe", "plan.json: not UTF-8 text"),
        (b'{"plan_id": "a", "plan_id": "b"}', "plan.json: duplicate key (got 'plan_id')"),
        (b'{"objective": NaN}', "plan.json: not valid JSON: NaN is not a JSON number"),
        (b"[" * 200_000, "plan.json: nested too deeply"),
        (b'{"objective": ' + b"9" * 5000 + b"}", "plan.json: not valid JSON: Exceeds the limit"),
        (b"[]", "plan.json: wrong value (got []); expected a mapping with keys"),
        (b"3", "plan.json: wrong value (got 3)"),
    ],
)
def test_content_that_is_no_plan(content, message):
    assert faults(content)[0].startswith(message)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(PlanFileError, match=r"none.json: cannot be read: No such file"):
        read_plan(tmp_path / "none.json")
    with pytest.raises(PlanFileError, match=r"cannot be read: Is a directory"):
        read_plan(tmp_path)


def test_the_published_schema_accepts_what_we_write_and_refuses_the_rest(plan):
    validator = jsonschema.Draft202012Validator(plan_schema())
    validator.check_schema(plan_schema())
    document = json.loads(plan_to_json(plan))
    assert list(validator.iter_errors(document)) == []
    assert list(validator.iter_errors(document | {"news": 1}))
    assert list(validator.iter_errors(document | {"schema_version": 2}))
    assert list(validator.iter_errors({k: v for k, v in document.items() if k != "plan_id"}))
