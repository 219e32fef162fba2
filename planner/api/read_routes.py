"""Routes that change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from planner.api.desk import Desk
from planner.api.examples import (
    diff_example,
    explain_example,
    history_example,
    kubernetes_example,
    published_example,
    status_example,
    what_if_example,
)
from planner.api.messages import (
    DiffMessage,
    ExplainMessage,
    HealthMessage,
    HistoryMessage,
    KubernetesMessage,
    PublishedMessage,
    SentenceMessage,
    StatusMessage,
    WhatIfMessage,
    WhatIfQuestion,
    diff_message,
    entry_message,
    published_message,
    shadow_message,
)
from planner.api.problem import ProblemError, documented
from planner.api.status_message import status_message
from planner.outlets.explain_plan import explain_plan
from planner.outlets.kubernetes import KubernetesSettings, kubernetes_documents
from planner.plan_diff import plan_diff
from planner.plan_store.layout import Published

MOST_VERSION = 999_999_999
WHAT_IF = """Plans another demand or another fleet, tries both placements on the same requests, publishes nothing.

Names, and what belongs together in a demand line or a fleet, are beyond a schema: a question that keeps the schema
and names a model that the fleet lacks is answered with 422 `invalid-input` or `invalid-document`, which say where.
"""
Version = Annotated[int, Path(ge=1, le=MOST_VERSION, description="Version of the plan.", examples=[12])]
Old = Annotated[
    int | None, Query(ge=1, le=MOST_VERSION, description="Version; none = the one before `new`.", examples=[11])
]
New = Annotated[
    int | None, Query(ge=1, le=MOST_VERSION, description="Version; none = the current one.", examples=[12])
]
READ = documented(401, 403, 422, 503)
FOUND = documented(401, 403, 404, 422, 503)


def health_routes(desk: Desk) -> APIRouter:
    """Health, open to all."""
    routes = APIRouter(tags=["health"])

    @routes.get("/livez", summary="Is the service up?", responses=documented())
    def livez() -> HealthMessage:
        return HealthMessage(status="up")

    @routes.get("/readyz", summary="Is a plan in force, and does the loop work?", responses=documented(503))
    def readyz() -> HealthMessage:
        status = desk.loop.status()
        if status.trouble:
            raise ProblemError(503, "trouble", status.trouble)
        if desk.loop.parts.store.current() is None:
            raise ProblemError(503, "no-plan", "no plan has been published yet")
        return HealthMessage(status="ready")

    return routes


def read_routes(desk: Desk, metrics: Collector) -> APIRouter:
    """Plans, their history, and questions."""
    routes = APIRouter(tags=["read"])
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)

    @routes.get("/v1/plan", summary="The plan in force", responses={200: published_example(), **FOUND})
    def current() -> PublishedMessage:
        return published_message(desk.current())

    @routes.get("/v1/plans", summary="Versions, newest first", responses={200: history_example(), **READ})
    def history(
        before: Annotated[
            int | None, Query(ge=1, le=MOST_VERSION, description="Only versions below it.", examples=[12])
        ] = None,
        limit: Annotated[int, Query(ge=1, le=500, description="Versions at most.", examples=[10])] = 50,
    ) -> HistoryMessage:
        entries = desk.loop.parts.store.folder.history(before, limit)
        return HistoryMessage(versions=[entry_message(entry) for entry in entries])

    @routes.get(
        "/v1/plans/{version}", summary="One version with its plan", responses={200: published_example(), **FOUND}
    )
    def one(version: Version) -> PublishedMessage:
        return published_message(desk.version(version))

    @routes.get(
        "/v1/plans/{version}/explain",
        summary="Why a plan is as it is",
        responses={200: explain_example(), **FOUND},
    )
    def explain_version(version: Version) -> ExplainMessage:
        return _explained(desk.version(version))

    @routes.get(
        "/v1/explain", summary="Why the plan in force is as it is", responses={200: explain_example(), **FOUND}
    )
    def explain() -> ExplainMessage:
        return _explained(desk.current())

    @routes.get(
        "/v1/diff", summary="What changes from one version to another", responses={200: diff_example(), **FOUND}
    )
    def diff(old: Old = None, new: New = None) -> DiffMessage:
        after = desk.current() if new is None else desk.version(new)
        if old is None and after.entry.version == 1:
            raise ProblemError(404, "no-version", "version 1 is the first one")
        before = desk.version(after.entry.version - 1 if old is None else old)
        return diff_message(plan_diff(before.plan, after.plan))

    @routes.get("/v1/status", summary="How the loop stands", responses={200: status_example(), **READ})
    def status() -> StatusMessage:
        return status_message(desk.loop.status())

    @routes.post(
        "/v1/what-if",
        summary="What would be planned, and what it would bring",
        responses={200: what_if_example(), **documented(400, 401, 403, 409, 422, 429, 503, 504)},
        description=WHAT_IF,
    )
    def ask(question: WhatIfQuestion) -> WhatIfMessage:
        answer = desk.ask(question)
        standing = desk.loop.parts.store.current()
        return WhatIfMessage(
            plan=answer.plan,
            diff=None if standing is None else diff_message(plan_diff(standing.plan, answer.plan)),
            simulated=shadow_message(answer.shadow),
            notes=list(answer.notes),
        )

    _add_metrics(routes, lambda: generate_latest(registry))
    _add_kubernetes(routes, desk)
    return routes


def _add_metrics(routes: APIRouter, page: Callable[[], bytes]) -> None:
    text = {
        "content": {
            "text/plain": {"schema": {"type": "string"}, "example": "tokenfleet_planner_plan_version 12.0\n"}
        },
        "description": "Prometheus text.",
    }

    @routes.get(
        "/metrics",
        summary="Desired replicas and the loop's state",
        response_class=PlainTextResponse,
        responses={200: text, **READ},
    )
    def metrics() -> Response:
        return Response(page(), media_type=CONTENT_TYPE_LATEST)


def _add_kubernetes(routes: APIRouter, desk: Desk) -> None:
    @routes.get(
        "/v1/kubernetes/{site}",
        summary="The plan of one site as Kubernetes objects",
        responses={200: kubernetes_example(), **FOUND},
    )
    def kubernetes(
        site: Annotated[str, Path(max_length=200, description="Site of the plan.", examples=["B"])],
        namespace: Annotated[
            str,
            Query(
                pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", description="Of all objects.", examples=["llm"]
            ),
        ] = "default",
        kind: Annotated[
            Literal["Deployment", "StatefulSet", "LeaderWorkerSet"],
            Query(description="Kind of the workloads.", examples=["StatefulSet"]),
        ] = "Deployment",
    ) -> KubernetesMessage:
        plan = desk.current().plan
        if site not in {row.site for row in plan.replicas}:
            raise ProblemError(404, "no-site", f"the plan places nothing at {site!r}")
        settings = KubernetesSettings(namespace=namespace, kind=kind)
        return KubernetesMessage(items=kubernetes_documents(plan, site, settings))


def _explained(published: Published) -> ExplainMessage:
    lines = [SentenceMessage(about=line.about, text=line.text) for line in explain_plan(published.plan)]
    return ExplainMessage(version=published.entry.version, plan_id=published.plan.plan_id, lines=lines)
