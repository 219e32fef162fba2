"""The planner's API against its own OpenAPI document: whatever is sent, the answer is one that is documented."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import negative_data_rejection


def _bench_module() -> ModuleType:
    """The helpers of the unit tests; test folders are no packages."""
    path = Path(__file__).resolve().parents[1] / "unit" / "planner" / "api" / "conftest.py"
    spec = importlib.util.spec_from_file_location("planner_api_bench", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


BENCH = _bench_module()
Schema = dict[str, Any]
CONFIG = SchemathesisConfig.from_str(
    """
# Names and what belongs together are beyond a schema; the document says so of this route.
[[operations]]
include-path = "/v1/what-if"
[operations.checks.positive_data_acceptance]
expected-statuses = ["2xx", "422"]
"""
)
CALLS = 20
OPERATOR = {"Authorization": "Bearer operator"}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from planner.api.access import Access, ApiToken
    from router.serving.auth import token_digest

    known = [
        ApiToken("dashboards", token_digest("reader"), "read"),
        ApiToken("on-call", token_digest("operator"), "operate"),
    ]
    made = BENCH.Bench(tmp_path_factory.mktemp("bench"), access=Access(known))
    for replicas in (1, 2, 3):
        made.step(replicas)
    return made


@pytest.fixture(scope="module")
def api(bench: Any) -> Any:
    return schemathesis.openapi.from_asgi("/openapi.json", bench.app, config=CONFIG)


@pytest.fixture(scope="module")
def document(bench: Any) -> Schema:
    found: Schema = bench.app.openapi()
    return found


OPERATIONS = (
    "get /livez",
    "get /metrics",
    "get /readyz",
    "get /v1/diff",
    "get /v1/explain",
    "get /v1/kubernetes/{site}",
    "get /v1/plan",
    "get /v1/plans",
    "get /v1/plans/{version}",
    "get /v1/plans/{version}/explain",
    "get /v1/status",
    "post /v1/roll-back",
    "post /v1/step",
    "post /v1/what-if",
)
KINDS: dict[str, Callable[[Any], SearchStrategy[Any]]] = {
    "examples of the document": lambda operation: st.one_of(operation.get_strategies_from_examples()),
    "what the schema allows": lambda operation: operation.as_strategy(GenerationMode.POSITIVE),
    "what it does not": lambda operation: operation.as_strategy(GenerationMode.NEGATIVE),
}
TAKES_NOTHING = (
    "get /livez",
    "get /metrics",
    "get /readyz",
    "get /v1/explain",
    "get /v1/plan",
    "get /v1/status",
    "post /v1/step",
)
ASKED = [
    (name, kind)
    for name in OPERATIONS
    for kind in KINDS
    # What takes nothing has no examples of it; what takes not even a token has no wrong form.
    if not (name in TAKES_NOTHING and kind.startswith("examples"))
    and not (name in ("get /livez", "get /readyz") and kind == "what it does not")
]


def test_the_list_of_operations_is_whole(document: Schema) -> None:
    assert sorted(f"{method} {path}" for method, path, _ in operations(document)) == list(OPERATIONS)


@pytest.mark.parametrize(("name", "kind"), ASKED)
def test_every_call_is_answered_as_the_document_says(api: Any, name: str, kind: str) -> None:
    """Statuses, headers, media types and bodies are the documented ones; good calls succeed, bad ones do not."""
    method, path = name.split(" ")
    strategy = KINDS[kind](api[path][method])

    @given(strategy)
    @settings(max_examples=CALLS, deadline=None, suppress_health_check=list(HealthCheck))
    def law(case: Any) -> None:
        answer = case.call(headers=OPERATOR)
        sent = parse_qs(urlsplit(answer.request.url).query, keep_blank_values=True)
        # An empty list has no form in a query: where it was what is wrong, nothing wrong was sent.
        lost = not set(case.query or ()) <= set(sent)
        case.validate_response(answer, excluded_checks=[negative_data_rejection] if lost else [])

    law()


def operations(document: Schema) -> Iterator[tuple[str, str, Schema]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def test_the_document_is_complete(document: Schema) -> None:
    """Every operation has a summary and documented errors; every property of what is given has a type."""
    for _, path, operation in operations(document):
        assert operation["summary"], path
        assert operation["tags"], path
        good = [status for status in operation["responses"] if status.startswith("2")]
        assert good, path
        for status, answer in operation["responses"].items():
            assert answer["description"], path
            for content in answer["content"].values():
                # Health and acceptance have their examples in the schemas of their fields.
                assert "example" in content or status == "202" or path in ("/livez", "/readyz"), (path, status)
        assert {"408", "413", "500"} <= set(operation["responses"]), path
        for parameter in operation.get("parameters", ()):
            assert parameter["description"], path
            assert parameter.get("examples") or parameter["schema"].get("examples"), (path, parameter["name"])
        if "requestBody" in operation:
            (content,) = operation["requestBody"]["content"].values()
            name = content["schema"]["$ref"].rsplit("/", 1)[1]
            assert document["components"]["schemas"][name]["examples"], path
    for name, schema in document["components"]["schemas"].items():
        for field, one in schema.get("properties", {}).items():
            assert {"type", "anyOf", "$ref", "enum", "const"} & set(one), f"{name}.{field}"


def test_every_reference_resolves_and_examples_keep_their_schema(document: Schema) -> None:
    def walk(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            for one in value.values():
                yield from walk(one)
        elif isinstance(value, list):
            for one in value:
                yield from walk(one)

    for _, path, operation in operations(document):
        for answer in operation["responses"].values():
            for content in answer["content"].values():
                if "example" in content:
                    schema = {**content["schema"], "components": document["components"]}
                    jsonschema.Draft202012Validator(schema).validate(content["example"]), path
    names = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(walk(document)) <= names
    for name, schema in document["components"]["schemas"].items():
        whole = {**schema, "components": document["components"]}
        for example in schema.get("examples", ()):
            jsonschema.Draft202012Validator(whole).validate(example)
        for field, one in schema.get("properties", {}).items():
            for example in one.get("examples", ()):
                field_schema = {**one, "components": document["components"]}
                jsonschema.Draft202012Validator(field_schema).validate(example), f"{name}.{field}"
