"""JSON Schema (draft 2020-12) of a dataclass, from the same type hints and rules that the reader obeys."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
import typing
from typing import Any

from data.strict.decode import ANNOTATION_PREFIX, field_hints
from data.strict.rules import ANY, Rule, RuleBook

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]


def json_schema(owner: type, book: RuleBook, title: str) -> Schema:
    """Schema of documents that hold one ``owner``; nested classes stand under ``$defs``."""
    definitions: dict[str, Schema] = {}
    body = _object(owner, book, definitions)
    return {"$schema": DIALECT, "title": title, **body, "$defs": dict(sorted(definitions.items()))}


def _object(owner: type, book: RuleBook, definitions: dict[str, Schema]) -> Schema:
    properties: Schema = {}
    required = []
    for item in dataclasses.fields(owner):
        key = book.key(owner, item.name)
        value = _value(field_hints(owner)[item.name], book.rule(owner, item.name), book, definitions)
        plain_default = item.default is None or isinstance(item.default, str | int | float)
        properties[key] = {**value, "default": item.default} if plain_default else value
        if book.required(owner, item):
            required.append(key)
    schema: Schema = {"type": "object", "description": _summary(owner), "properties": properties}
    if book.annotations:
        schema["patternProperties"] = {f"^{ANNOTATION_PREFIX}": True}
    return {**schema, "required": required, "additionalProperties": False}


def _value(hint: Any, rule: Rule, book: RuleBook, definitions: dict[str, Schema]) -> Schema:
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        inner = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        return {"anyOf": [*(_value(arg, rule, book, definitions) for arg in inner), {"type": "null"}]}
    if origin is typing.Literal:
        return {"enum": list(typing.get_args(hint))}
    if origin is tuple:
        return {"type": "array", "items": _value(typing.get_args(hint)[0], rule, book, definitions)}
    if origin is dict:
        return {
            "type": "object",
            "additionalProperties": _value(typing.get_args(hint)[1], rule, book, definitions),
        }
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}  # holds the place while the class itself is described
            definitions[hint.__name__] = _object(hint, book, definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    if isinstance(hint, type) and issubclass(hint, enum.StrEnum):
        return {"enum": [member.value for member in hint]}
    return _scalar(hint, rule)


def _scalar(hint: Any, rule: Rule) -> Schema:
    if hint is bool:
        return {"type": "boolean"}
    if hint is str:
        return (
            {"type": "string"} if rule.pattern is None else {"type": "string", "pattern": f"^(?:{rule.pattern})$"}
        )
    schema: Schema = {"type": "integer" if hint is int else "number"}
    if rule is ANY:
        return schema
    if rule.minimum is not None:
        schema["exclusiveMinimum" if rule.above else "minimum"] = rule.minimum
    if rule.maximum is not None:
        schema["maximum"] = rule.maximum
    return schema


def _summary(owner: type) -> str:
    return (inspect.getdoc(owner) or owner.__name__).split("\n\n")[0].replace("\n", " ").replace("``", "`")
