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
from starlette.types import Send

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


async def send_problem(send: Send, problem: ProblemError) -> None:
    """Answer with a problem document from a layer in front of the application."""
    body = problem_body(problem)
    headers = {"content-type": MEDIA_TYPE, "content-length": str(len(body)), **problem.headers}
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


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


EXAMPLES = {
    400: ("http", "There was an error parsing the body"),
    401: ("unknown-caller", "no valid bearer token"),
    403: ("not-permitted", "dashboards has the role read, not operate"),
    404: ("no-version", "version 99 cannot be read: No such file or directory"),
    408: ("too-slow", "the body was not there after 30 s"),
    409: ("not-leader", "node-2:17 (epoch 4) leads this plan store, not this planner (epoch 3)"),
    413: ("too-large", "the body is larger than 4,000,000 bytes"),
    422: ("invalid-request", "Input should be greater than 0"),
    429: ("busy", "as many questions are being answered as may be"),
    500: ("fault", "a fault of the planner: ValueError"),
    503: ("unavailable", "OSError: the plan store cannot be written"),
    504: ("deadline", "the question was given up: not done after 60 s"),
}
"""Kind and detail of an example of each status."""
EVERYWHERE = (408, 413, 500)
"""What any route may answer."""


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Problem answers for the OpenAPI document: these, and those of every route."""
    answers: dict[int | str, dict[str, Any]] = {}
    for status in sorted({*statuses, *EVERYWHERE}):
        phrase, (kind, detail) = HTTPStatus(status).phrase, EXAMPLES[status]
        example = {"type": f"urn:tokenfleet:problem:{kind}", "title": phrase, "status": status, "detail": detail}
        content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}, "example": example}}
        answers[status] = {"description": phrase, "content": content}
    return answers
