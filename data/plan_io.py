"""Read and write the plan document: strict JSON, atomic files, a published JSON Schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from data.atomic_file import write_text_atomic
from data.errors import PlanFileError
from data.plan import PLAN_SCHEMA_VERSION, PlanDocument
from data.plan_rules import PLAN_BOOK, plan_faults
from data.strict.decode import Decoder
from data.strict.encode import to_plain
from data.strict.faults import Fault, to_errors
from data.strict.schema import json_schema

MAX_BYTES = 200_000_000


def read_plan(path: Path) -> PlanDocument:
    """Read and check a plan file.

    Raises:
        PlanFileError: The file cannot be read or is wrong; ``problems`` holds every fault.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise PlanFileError("file too large", source=str(path), expected=f"at most {MAX_BYTES} bytes")
        content = path.read_bytes()
    except OSError as error:
        raise PlanFileError(f"cannot be read: {error.strerror}", source=str(path)) from error
    return plan_from_json(content, str(path))


def write_plan(plan: PlanDocument, path: Path) -> None:
    """Write a plan file at once.

    Raises:
        PlanFileError: The plan could not be read back, or the file cannot be written; the old one is kept.
    """
    text = plan_to_json(plan)
    try:
        write_text_atomic(path, text)
    except OSError as error:
        raise PlanFileError(f"cannot be written: {error.strerror}", source=str(path)) from error


def plan_to_json(plan: PlanDocument) -> str:
    """The plan as indented JSON, keys in the order of the class; same plan, same text.

    Raises:
        PlanFileError: The plan breaks a rule of the document (a negative count, a bound that is not finite).
    """
    plain = to_plain(plan, PLAN_BOOK)
    _checked(plain, None)
    return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def plan_from_json(content: str | bytes, source: str | None = None) -> PlanDocument:
    """A plan from JSON text; ``source`` names it in errors. Raises ``PlanFileError`` as ``read_plan`` does."""
    return _checked(_parse(content, source), source)


def plan_schema() -> dict[str, Any]:
    """JSON Schema of the plan document."""
    return json_schema(PlanDocument, PLAN_BOOK, "TokenFleet plan")


def _parse(content: str | bytes, source: str | None) -> object:
    repeated: list[str] = []

    def pairs(items: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(items)
        if len(found) < len(items):
            keys = [key for key, _ in items]
            repeated.extend(key for key in found if keys.count(key) > 1)
        return found

    try:
        text = content.decode("utf-8-sig") if isinstance(content, bytes) else content
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise PlanFileError(f"not valid JSON: {error.msg}", source=source, line=error.lineno) from error
    except UnicodeDecodeError as error:
        raise PlanFileError("not UTF-8 text", source=source, expected="UTF-8") from error
    except RecursionError as error:
        raise PlanFileError("nested too deeply", source=source) from error
    except ValueError as error:
        raise PlanFileError(f"not valid JSON: {error}", source=source) from error
    if repeated:
        raise PlanFileError("duplicate key", source=source, value=repeated[0], expected="each key once")
    return value


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


def _checked(value: object, source: str | None) -> PlanDocument:
    decoder = Decoder(PLAN_BOOK)
    plan: object = None
    version = value.get("schema_version", PLAN_SCHEMA_VERSION) if isinstance(value, dict) else PLAN_SCHEMA_VERSION
    if version != PLAN_SCHEMA_VERSION or isinstance(version, bool):
        # Another version has other fields: listing those as faults would only bury the reason.
        problem, expected = "another version of the plan document", str(PLAN_SCHEMA_VERSION)
        decoder.faults.append(Fault(("schema_version",), problem, value=version, expected=expected))
    else:
        plan = decoder.read(PlanDocument, value)
    faults = decoder.faults
    if isinstance(plan, PlanDocument) and not faults:
        faults = plan_faults(plan)
    if isinstance(plan, PlanDocument) and not faults:
        return plan
    problems = to_errors(faults, PlanFileError, source)
    first = problems[0]
    first.problems = tuple(problems)
    raise first
