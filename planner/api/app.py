"""The API as a FastAPI application: what may be read, what may be ordered, who may do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client.registry import Collector

from data.version import __version__
from planner.api.access import Access, ApiToken, Role, may
from planner.api.body_limit import BodyLimit
from planner.api.call_limit import CallLimit
from planner.api.desk import Desk
from planner.api.operate_routes import operate_routes
from planner.api.problem import SCHEMA, ProblemError, add_problem_handlers
from planner.api.read_routes import health_routes, read_routes

BEARER = HTTPBearer(auto_error=False, description="A token of the tokens file.")
Guard = Callable[..., Any]
ABOUT = """Plans of a fleet of LLM engines: what is in force, what was, what changes, and what would be planned if.

Errors are problem documents (RFC 9457). Where tokens are in use, all but the health pages want
`Authorization: Bearer TOKEN`; tokens have the role `read` or `operate`.
"""


def create_app(desk: Desk, access: Access, metrics: Collector) -> FastAPI:
    """The application.

    Args:
        desk: What it asks.
        access: Who may call.
        metrics: What ``/metrics`` shows.
    """
    app = FastAPI(
        title="TokenFleet planner",
        version=__version__,
        description=ABOUT,
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
    )
    add_problem_handlers(app)
    app.add_middleware(BodyLimit, most_bytes=desk.settings.most_bytes, wait_s=desk.settings.body_wait_s)
    app.add_middleware(CallLimit, most=desk.settings.calls_at_a_time)
    app.include_router(health_routes(desk))
    known = Depends(only_known_parameters)
    app.include_router(read_routes(desk, metrics), dependencies=[Depends(guard(access, "read")), known])
    app.include_router(operate_routes(desk), dependencies=[Depends(guard(access, "operate")), known])
    _add_problem_schema(app)
    return app


def guard(access: Access, role: Role) -> Guard:
    """A dependency that lets only callers with this role pass."""

    def check(given: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]) -> ApiToken | None:
        if access.open:
            return None
        caller = access.caller(None if given is None else given.credentials)
        if caller is None:
            raise ProblemError(401, "unknown-caller", "no valid bearer token", {"WWW-Authenticate": "Bearer"})
        if not may(caller, role):
            raise ProblemError(403, "not-permitted", f"{caller.name} has the role {caller.role}, not {role}")
        return caller

    return check


def only_known_parameters(request: Request) -> None:
    """A dependency that refuses query parameters that the route does not have: misspelt is not left out.

    Raises:
        ProblemError: There is one; it is named, with those that there are.
    """
    route = request.scope["route"]
    known = sorted(field.alias for field in route.dependant.query_params)
    for name in request.query_params:
        if name not in known:
            expected = ", ".join(known) or "none"
            errors = [{"detail": f"unknown parameter; known: {expected}", "pointer": f"/query/{name}"}]
            raise ProblemError(422, "invalid-request", f"unknown query parameter {name!r}", errors=errors)


def _add_problem_schema(app: FastAPI) -> None:
    plain = app.openapi

    def with_problem() -> dict[str, Any]:
        document = plain()
        document.setdefault("components", {}).setdefault("schemas", {}).setdefault("Problem", SCHEMA)
        return document

    app.openapi = with_problem  # type: ignore[method-assign]
