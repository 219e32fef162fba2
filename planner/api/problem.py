"""Errors as problem documents (RFC 9457), always made by a serializer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from data.errors import DocumentError, InfeasibleError, InputError, TokenFleetError
from planner.plan_store.leader import NotLeaderError

MEDIA_TYPE = "application/problem+json"
MOST_ERRORS = 50
SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "Problem",
    "description": "RFC 9457 problem document.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "description": "Kind of the problem, a URN."},
        "title": {"type": "string", "description": "The kind in words."},
        "status": {"type": "integer", "description": "HTTP status."},
        "detail": {"type": "string", "description": "What is wrong this time."},
        "errors": {
            "type": "array",
            "description": "Each fault of what was sent.",
            "items": {
                "type": "object",
                "required": ["detail"],
                "properties": {
                    "detail": {"type": "string"},
                    "pointer": {"type": "string", "description": "Where in what was sent."},
                },
            },
        },
    },
}


class ProblemError(Exception):
    """An answer that is a problem document.

    Args:
        status: HTTP status.
        kind: One word with hyphens; the type's URN is made of it.
        detail: What is wrong.
        headers: Further headers.
        errors: Single faults.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        headers: Mapping[str, str] | None = None,
        errors: Sequence[Mapping[str, str]] = (),
    ) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail = status, kind, detail
        self.headers, self.errors = dict(headers or {}), list(errors)


def problem_body(problem: ProblemError) -> bytes:
    """The document as JSON, valid for any text in it."""
    content: dict[str, Any] = {
        "type": f"urn:tokenfleet:problem:{problem.kind}",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": problem.detail,
    }
    if problem.errors:
        content["errors"] = problem.errors[:MOST_ERRORS]
    return json.dumps(content).encode()


def problem_of(error: TokenFleetError | OSError) -> ProblemError:
    """The problem that an error of ours is to a caller."""
    if isinstance(error, DocumentError):
        errors = [{"detail": str(one), "pointer": one.field or ""} for one in error.problems]
        return ProblemError(422, "invalid-document", str(error), errors=errors)
    if isinstance(error, InputError):
        return ProblemError(422, "invalid-input", str(error))
    if isinstance(error, InfeasibleError):
        return ProblemError(422, "infeasible", str(error))
    if isinstance(error, NotLeaderError):
        return ProblemError(409, "not-leader", str(error))
    return ProblemError(503, "unavailable", f"{type(error).__name__}: {error}", {"Retry-After": "5"})


def add_problem_handlers(app: FastAPI) -> None:
    """Make every error answer of ``app`` a problem document."""

    def answer(problem: ProblemError) -> Response:
        return Response(problem_body(problem), problem.status, problem.headers, MEDIA_TYPE)

    async def told(request: Request, error: Exception) -> Response:  # noqa: ARG001
        assert isinstance(error, ProblemError)
        return answer(error)

    async def ours(request: Request, error: Exception) -> Response:  # noqa: ARG001
        assert isinstance(error, TokenFleetError | OSError)
        return answer(problem_of(error))

    async def http(request: Request, error: Exception) -> Response:  # noqa: ARG001
        assert isinstance(error, HTTPException)
        return answer(ProblemError(error.status_code, "http", str(error.detail), error.headers))

    async def invalid(request: Request, error: Exception) -> Response:  # noqa: ARG001
        assert isinstance(error, RequestValidationError)
        errors = [
            {"detail": str(one["msg"]), "pointer": "/" + "/".join(str(part) for part in one["loc"])}
            for one in error.errors()
        ]
        return answer(ProblemError(422, "invalid-request", errors[0]["detail"], errors=errors))

    async def fault(request: Request, error: Exception) -> Response:  # noqa: ARG001
        return answer(ProblemError(500, "fault", f"a fault of the planner: {type(error).__name__}"))

    app.add_exception_handler(ProblemError, told)
    app.add_exception_handler(TokenFleetError, ours)
    app.add_exception_handler(OSError, ours)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, fault)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Problem answers for the OpenAPI document."""
    answers: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        phrase = HTTPStatus(status).phrase
        example = {"type": "urn:tokenfleet:problem:example", "title": phrase, "status": status, "detail": "why"}
        content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}, "example": example}}
        answers[status] = {"description": phrase, "content": content}
    return answers
