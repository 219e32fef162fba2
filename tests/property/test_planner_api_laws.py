"""The planner's API against its own OpenAPI document: whatever is sent, the answer is one that is documented."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote, urlencode

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


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
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = BENCH.Bench(tmp_path_factory.mktemp("bench"))
    for replicas in (1, 2, 3):
        made.step(replicas)
    return made


@pytest.fixture(scope="module")
def document(bench: Any) -> Schema:
    found: Schema = bench.app.openapi()
    return found


def operations(document: Schema) -> Iterator[tuple[str, str, Schema]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def resolved(schema: Schema, document: Schema) -> Schema:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return schema


def values(schema: Schema, document: Schema, depth: int = 0) -> st.SearchStrategy[Any]:
    """What a schema allows; a rough but honest half of JSON Schema."""
    schema = resolved(schema, document)
    if "anyOf" in schema:
        return st.one_of([values(one, document, depth) for one in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema.get("type")
    if kind == "object":
        return objects(schema, document, depth)
    if kind == "array":
        return st.lists(values(schema["items"], document, depth + 1), max_size=3)
    if kind == "string":
        if "pattern" in schema:
            return st.from_regex(schema["pattern"])
        return st.text(min_size=schema.get("minLength", 0), max_size=min(schema.get("maxLength", 30), 30))
    if kind == "integer":
        return st.integers(schema.get("minimum", -(10**12)), schema.get("maximum", 10**12))
    if kind == "number":
        low = schema.get("minimum", schema.get("exclusiveMinimum", -1e12))
        return st.floats(low, schema.get("maximum", 1e12), exclude_min="exclusiveMinimum" in schema)
    return {"boolean": st.booleans(), "null": st.none()}.get(str(kind), ANYTHING)


def objects(schema: Schema, document: Schema, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    known = {name: values(one, document, depth + 1) for name, one in schema.get("properties", {}).items()}
    needed = {name: known.pop(name) for name in schema.get("required", ())}
    if not known and not needed:
        return st.dictionaries(st.text(max_size=10), ANYTHING, max_size=3)
    return st.fixed_dictionaries(needed, optional=known)


def check(answer: Any, operation: Schema, document: Schema) -> None:
    """The status, the media type and the body are documented."""
    documented = operation["responses"]
    assert str(answer.status) in documented, f"{answer.status}: {answer.body[:300]!r}"
    content = documented[str(answer.status)]["content"]
    media = answer.headers["content-type"].split(";")[0]
    assert media in content
    if media.endswith("json"):
        schema = {**content[media]["schema"], "components": document["components"]}
        jsonschema.Draft202012Validator(schema).validate(json.loads(answer.body))
    if answer.status >= 400:
        assert media == "application/problem+json"
        assert answer.json()["status"] == answer.status


def send(bench: Any, method: str, path: str, operation: Schema, draw: Callable[[Schema], Any]) -> Any:
    """A request made of what ``draw`` gives for each of its schemas."""
    query = {}
    for parameter in operation.get("parameters", ()):
        value = draw(parameter["schema"])
        if parameter["in"] == "path":
            path = path.replace("{" + parameter["name"] + "}", quote(str(value), safe="", errors="replace") or "x")
        elif value is not None:
            query[parameter["name"]] = value
    body = None
    if "requestBody" in operation:
        body = draw(operation["requestBody"]["content"]["application/json"]["schema"])
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
    text = urlencode(query, errors="replace")
    return BENCH.call(bench.app, method.upper(), path, body, None, text)


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


def test_the_list_of_operations_is_whole(document: Schema) -> None:
    assert sorted(f"{method} {path}" for method, path, _ in operations(document)) == list(OPERATIONS)


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_the_document_allows_is_answered_as_it_says(bench: Any, document: Schema, name: str) -> None:
    method, path = name.split(" ")
    operation = document["paths"][path][method]

    @given(st.data())
    @settings(max_examples=25, deadline=None)
    def law(data: st.DataObject) -> None:
        check(
            send(bench, method, path, operation, lambda schema: data.draw(values(schema, document))),
            operation,
            document,
        )

    law()


@pytest.mark.parametrize("name", OPERATIONS)
def test_anything_at_all_is_answered_with_a_documented_problem(bench: Any, document: Schema, name: str) -> None:
    method, path = name.split(" ")
    operation = document["paths"][path][method]

    @given(st.data())
    @settings(max_examples=25, deadline=None)
    def law(data: st.DataObject) -> None:
        answer = send(bench, method, path, operation, lambda _: data.draw(ANYTHING))
        # Some texts make another path: it is unknown, and that is a problem document as well.
        if answer.status == 404 and "404" not in operation["responses"]:
            assert answer.json()["type"] == "urn:tokenfleet:problem:http"
            return
        check(answer, operation, document)

    law()


def test_the_document_is_complete(document: Schema) -> None:
    """Every operation has a summary and documented errors; every property of what is given has a type."""
    for method, path, operation in operations(document):
        assert operation["summary"], path
        assert operation["tags"], path
        good = [status for status in operation["responses"] if status.startswith("2")]
        assert good, path
        for answer in operation["responses"].values():
            assert answer["description"], path
            assert answer["content"], path
        if method == "post" and "requestBody" in operation:
            assert "413" in operation["responses"], path
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
