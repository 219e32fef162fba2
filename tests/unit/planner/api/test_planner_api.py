"""The planner's API: what it tells, what it does, whom it lets, and how it says no."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data.errors import DocumentError, InputError, SettingError
from data.plan import VersionRamp
from data.plan_io import plan_from_json
from planner.api.access import Access, ApiToken, load_tokens
from planner.api.desk import DeskSettings
from planner.api.problem import ProblemError, problem_body
from planner.work_pool import WorkError

OPERATOR = {"Authorization": "Bearer operator"}
READER = {"Authorization": "Bearer reader"}


def problem(answer: Any, status: int, kind: str) -> dict[str, Any]:
    """The answer is this problem document."""
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert found["type"] == f"urn:tokenfleet:problem:{kind}"
    assert found["status"] == status
    return found


def test_the_plan_in_force_and_every_version_before_it(bench: Any) -> None:
    current = bench.get("/v1/plan").json()
    assert (current["entry"]["version"], current["entry"]["kind"]) == (3, "published")
    assert current["entry"]["good_share_before"] == pytest.approx(0.9)
    assert plan_from_json(json.dumps(current["plan"])) == bench.store.current().plan
    assert [one["version"] for one in bench.get("/v1/plans").json()["versions"]] == [3, 2, 1]
    assert [one["version"] for one in bench.get("/v1/plans", "before=3&limit=1").json()["versions"]] == [2]
    assert bench.get("/v1/plans/1").json()["plan"]["plan_id"] == "plan-1"


def test_what_changes_between_versions(bench: Any) -> None:
    for query in ("", "old=2&new=3", "old=2"):
        diff = bench.get("/v1/diff", query).json()
        assert (diff["old_id"], diff["new_id"]) == ("plan-2", "plan-3")
        assert diff["places"][0]["replicas_after"] == 3
    assert bench.get("/v1/diff", "old=3&new=1").json()["places"][0]["gpus"] == -2


def test_an_explanation_is_made_of_sentences(bench: Any) -> None:
    found = bench.get("/v1/explain").json()
    assert found == bench.get("/v1/plans/3/explain").json()
    assert {line["about"] for line in found["lines"]} == {"plan", "demand", "move"}


def test_the_status_tells_the_last_step_and_the_fleet_file_f129_f134(bench: Any) -> None:
    """F129, F134: the fleet that counts, the one tried last, and its errors can be read at run time."""
    path = bench.loop.parts.fleet_path
    path.write_text(path.read_text().replace("count: 6", "count: -4"))
    bench.step(3)
    found = bench.get("/v1/status").json()
    assert (found["leads"], found["epoch"], found["failures"]) == (True, 1, 0)
    assert (found["last_step"]["verdict"], found["last_step"]["good_share"]) == ("renew", pytest.approx(0.9))
    assert "count" in found["fleet_errors"][0]
    assert found["fleet_active"] != found["fleet_attempted"]
    told = {one["name"]: (one["value"], one["source"]) for one in found["settings"]}
    assert told["shadow_requests"] == (40.0, "given")
    assert told["falls"] == (2.0, "default")


def test_health_says_what_is_missing(make_bench: Callable[..., Any]) -> None:
    empty = make_bench(versions=0)
    assert empty.get("/livez").json() == {"status": "up"}
    problem(empty.get("/readyz"), 503, "no-plan")
    problem(empty.get("/v1/plan"), 404, "no-plan")
    empty.step(2)
    assert empty.get("/readyz").json() == {"status": "ready"}
    empty.loop._trouble = "the disk is full"
    assert problem(empty.get("/readyz"), 503, "trouble")["detail"] == "the disk is full"


def test_desired_replicas_are_gauges(bench: Any) -> None:
    page = bench.get("/metrics").body.decode()
    labels = 'config="chat-h100",gpu_type="H100",model="chat@v1",site="eu-1"'
    assert f"tokenfleet_planner_desired_replicas{{{labels}}} 3.0" in page
    assert 'tokenfleet_planner_steps_total{verdict="publish"} 3.0' in page
    assert "tokenfleet_planner_plan_version 3.0" in page


def test_a_ramp_is_a_gauge(bench: Any) -> None:
    ramp = VersionRamp("chat", "chat@v1", "chat@v2", 0.1, "2026-01-01T00:00:00Z", "ramp-1")
    current = bench.store.current()
    bench.store.publish(replace(current.plan, ramps=(ramp,)), bench.now_s)
    page = bench.get("/metrics").body.decode()
    assert 'tokenfleet_planner_ramp_share{model="chat",new="chat@v2",state="ramping"} 0.1' in page
    assert bench.get("/v1/plan").json()["plan"]["ramps"][0]["share"] == 0.1


def test_without_a_plan_there_is_no_gauge_of_replicas_rather_than_zero(make_bench: Callable[..., Any]) -> None:
    assert "desired_replicas" not in make_bench(versions=0).get("/metrics").body.decode()


def test_a_site_as_kubernetes_patches(bench: Any) -> None:
    answer = bench.get("/v1/kubernetes/eu-1", "namespace=llm&kind=StatefulSet")
    found = answer.json()
    assert (found["apiVersion"], found["kind"]) == ("v1", "List")
    assert [one["kind"] for one in found["items"]] == ["StatefulSet", "InferencePool"]
    assert found["items"][0]["spec"] == {"replicas": 3}
    problem(bench.get("/v1/kubernetes/mars"), 404, "no-site")


def test_rolling_back_by_hand(bench: Any) -> None:
    entry = bench.post("/v1/roll-back", {"reason": "on-call says so"}).json()
    assert (entry["kind"], entry["restores"], entry["reason"]) == ("rolled_back", 2, "on-call says so")
    assert bench.get("/v1/plan").json()["plan"]["plan_id"] == "plan-2"
    bench.step(3)
    assert bench.get("/v1/plan").json()["plan"]["plan_id"] == "plan-2", "what was taken back stays out"
    assert bench.post("/v1/roll-back", {"version": 1}).json()["restores"] == 1
    problem(bench.post("/v1/roll-back", {"version": 999}), 404, "no-version")


def test_a_planner_that_does_not_lead_cannot_roll_back(bench: Any) -> None:
    bench.store.leader.close()
    problem(bench.post("/v1/roll-back", {}), 409, "not-leader")


def test_a_step_may_be_ordered(bench: Any) -> None:
    before = bench.get("/v1/status").json()["next_step_s"]
    assert bench.post("/v1/step").status == 202
    assert bench.get("/v1/status").json()["next_step_s"] < before


def test_a_question_is_answered_by_a_real_step(bench: Any) -> None:
    bench.real = True
    body = {"demand_scale": 20.0, "gpus": [{"site": "eu-1", "gpu_type": "H100", "count": 5}]}
    found = bench.post("/v1/what-if", body).json()
    planned = sum(row["replicas"] for row in found["plan"]["replicas"])
    assert 3 < planned <= 5
    assert found["diff"]["old_id"] == "plan-3"
    assert found["simulated"]["running"] > 0
    assert bench.get("/v1/plan").json()["plan"]["plan_id"] == "plan-3", "nothing of it is published"


LINE = {"model": "chat@v1", "workload_class": "interactive", "tenant": "acme", "origin": "eu-1"}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"{", "invalid-request"),
        (b"[]", "invalid-request"),
        (b'{"demand_scale": NaN}', "invalid-request"),
        (b'{"demand_scale": 1e999}', "invalid-request"),
        ({"demand_scale": 0}, "invalid-request"),
        ({"demnad_scale": 2}, "invalid-request"),
        ({"demand": {"demand": [{**LINE, "model": "nope", "tokens_per_s": 1}]}}, "invalid-input"),
        ({"demand": {"demand": [LINE]}}, "invalid-input"),
        ({"fleet": {"name": "x"}}, "invalid-document"),
        ({"gpus": [{"site": "mars", "gpu_type": "H100", "count": 1}]}, "invalid-document"),
    ],
)
def test_wrong_questions_are_problems_that_say_where_f127_f130(bench: Any, body: object, kind: str) -> None:
    """F127, F130: unknown keys and wrong values are refused with their place, in a body that parses."""
    found = problem(bench.post("/v1/what-if", body), 422, kind)
    assert found["detail"]


def test_a_question_without_any_demand_known_says_what_to_give(make_bench: Callable[..., Any]) -> None:
    problem(make_bench(versions=0).post("/v1/what-if", {}), 409, "no-demand")


def test_questions_are_bounded_in_number_time_and_size(make_bench: Callable[..., Any]) -> None:
    bench = make_bench(DeskSettings(most_bytes=1000))
    problem(bench.post("/v1/what-if", b" " * 1001), 413, "too-large")
    assert bench.desk._questions.acquire(blocking=False)
    busy = bench.post("/v1/what-if", {})
    problem(busy, 429, "busy")
    assert int(busy.headers["retry-after"]) > 0
    bench.desk._questions.release()

    def late(*arguments: Any, deadline_s: float) -> Any:
        raise WorkError(f"not done after {deadline_s:g} s")

    bench.desk._apart = late
    assert "60 s" in problem(bench.post("/v1/what-if", {}), 504, "deadline")["detail"]
    assert bench.desk._questions.acquire(blocking=False), "a question that was given up frees its place"


@pytest.mark.parametrize(
    ("headers", "read", "operate"),
    [
        ({}, 401, 401),
        ({"Authorization": "Bearer nobody"}, 401, 401),
        ({"Authorization": "Basic cmVhZGVy"}, 401, 401),
        ({"Authorization": "Bearer " + "x" * 5000}, 401, 401),
        ({"Authorization": "Bearer \xff\xfe"}, 401, 401),
        (READER, 200, 403),
        (OPERATOR, 200, 202),
    ],
)
def test_tokens_have_roles(
    make_bench: Callable[..., Any], tokens: Access, headers: dict[str, str], read: int, operate: int
) -> None:
    bench = make_bench(access=tokens)
    assert bench.get("/v1/plan", headers=headers).status == read
    answer = bench.post("/v1/step", headers=headers)
    assert answer.status == operate
    assert (answer.headers.get("www-authenticate") == "Bearer") == (operate == 401)
    assert bench.get("/livez", headers=headers).status == 200


def test_every_route_but_health_wants_a_token(make_bench: Callable[..., Any], tokens: Access) -> None:
    bench = make_bench(access=tokens)
    for path, methods in bench.app.openapi()["paths"].items():
        for method in methods:
            url = path.replace("{version}", "1").replace("{site}", "eu-1")
            call = bench.get if method == "get" else bench.post
            assert (call(url).status == 401) == (path not in ("/livez", "/readyz")), path


def test_unknown_routes_and_methods_are_problems(bench: Any) -> None:
    assert problem(bench.get("/nope"), 404, "http")["title"] == "Not Found"
    problem(bench.post("/v1/plan"), 405, "http")


def test_unknown_query_parameters_are_refused_with_those_that_there_are_f130(bench: Any) -> None:
    """F130: a misspelt parameter is not taken for one that was not given."""
    found = problem(bench.get("/v1/plans", "befor=3"), 422, "invalid-request")
    assert found["errors"] == [{"detail": "unknown parameter; known: before, limit", "pointer": "/query/befor"}]
    problem(bench.get("/metrics", "format=x"), 422, "invalid-request")
    assert bench.get("/livez", "probe=1").status == 200


def test_a_body_that_is_declared_too_large_is_refused_unread_f124(make_bench: Callable[..., Any]) -> None:
    """F124: at once, whole or slow, with the limit in words."""
    bench = make_bench(DeskSettings(most_bytes=1000))
    answer = bench.post("/v1/what-if", b"", {"Content-Length": "1001"})
    assert "1,000 bytes" in problem(answer, 413, "too-large")["detail"]
    assert answer.headers["connection"] == "close"


def test_a_body_that_does_not_come_ends_in_a_problem_f124(make_bench: Callable[..., Any]) -> None:
    """F124: never a hang."""
    bench = make_bench(DeskSettings(body_wait_s=0.1))
    got: list[Any] = []

    async def never() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        got.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/what-if", "headers": [(b"content-length", b"10")]}
    asyncio.run(bench.app(scope, never, send))
    assert got[0]["status"] == 408
    assert json.loads(got[1]["body"])["type"] == "urn:tokenfleet:problem:too-slow"


def test_calls_beyond_the_bound_are_refused_at_once_and_health_is_not(make_bench: Callable[..., Any]) -> None:
    bench = make_bench(DeskSettings(calls_at_a_time=1))
    inside: list[Any] = []

    def busy() -> Any:
        inside.extend([bench.get("/v1/plan"), bench.get("/livez")])
        return plain()

    plain, bench.loop.status = bench.loop.status, lambda: nested(busy)

    def nested(work: Callable[[], Any]) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(work).result()

    assert bench.get("/v1/status").status == 200
    refused, health = inside
    problem(refused, 503, "busy")
    assert refused.headers["retry-after"] == "1"
    assert health.status == 200
    bench.loop.status = plain
    assert bench.get("/v1/status").status == 200, "a call that is over frees its place"


def test_a_fault_of_ours_is_a_problem_too(bench: Any) -> None:
    bench.loop.status = lambda: 1 / 0
    assert "ZeroDivisionError" in problem(bench.get("/v1/status"), 500, "fault")["detail"]


@given(st.text(), st.text())
def test_problem_bodies_parse_whatever_they_tell_f127(detail: str, pointer: str) -> None:
    """F127: error bodies come from a serializer."""
    error = ProblemError(422, "x", detail, errors=[{"detail": detail, "pointer": pointer}])
    found = json.loads(problem_body(error))
    assert (found["detail"], found["errors"][0]["pointer"]) == (detail, pointer)


@given(name=st.text(min_size=1, max_size=100))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_name_in_an_error_path_gives_a_body_that_parses_f127(bench: Any, name: str) -> None:
    """F127: tenant and model names are fuzzed into the error paths."""
    line = {**LINE, "model": name, "tenant": name, "tokens_per_s": 1.0}
    answer = bench.post("/v1/what-if", {"demand": {"demand": [line]}})
    assert answer.status == 422
    assert answer.json()["detail"]


def test_the_tokens_file_is_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "tokens.yaml"
    digest = "a" * 64
    path.write_text(f"tokens:\n  - {{name: x, token_sha256: {digest}, role: operate}}\n")
    assert load_tokens(path) == (ApiToken("x", digest, "operate"),)
    for text in (
        "tokens: [{name: x, token_sha256: short}]",
        f"tokens: [{{name: x, token_sha256: {digest}, role: admin}}]",
        f"tokens: [{{name: x, token: {digest}}}]",
        f"tokens: [{{name: x, token_sha256: {digest}}}, {{name: y, token_sha256: {digest}}}]",
        "tokens: [",
    ):
        path.write_text(text)
        with pytest.raises(DocumentError):
            load_tokens(path)
    with pytest.raises(InputError):
        load_tokens(tmp_path / "none")


def test_bounds_are_checked() -> None:
    for wrong in (
        {"what_if_deadline_s": 0},
        {"what_if_limit_s": 1e9},
        {"what_if_at_a_time": 0},
        {"most_bytes": 1},
        {"body_wait_s": 0.0},
        {"calls_at_a_time": 0},
    ):
        with pytest.raises(SettingError):
            DeskSettings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"demand_scale": 1' + b"0" * 5000 + b"}", b'{"x": "\\ud800"}'])
def test_bodies_that_break_parsers_are_refused_f127(bench: Any, body: bytes) -> None:
    """F127: depth, size of numbers and half characters end in a documented problem."""
    for path in ("/v1/what-if", "/v1/roll-back"):
        answer = bench.post(path, body)
        assert answer.status in (400, 422)
        assert answer.json()["status"] == answer.status
