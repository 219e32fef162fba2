"""Routes that change what is in force; they want the role ``operate``."""

from __future__ import annotations

from fastapi import APIRouter

from data.errors import PlanFileError
from planner.api.desk import Desk
from planner.api.examples import roll_back_example
from planner.api.messages import AcceptedMessage, EntryMessage, RollBackQuestion, entry_message
from planner.api.problem import ProblemError, documented


def operate_routes(desk: Desk) -> APIRouter:
    """Roll back, step now."""
    routes = APIRouter(tags=["operate"])

    @routes.post(
        "/v1/roll-back",
        summary="Put an earlier plan back, without solving anything",
        responses={200: roll_back_example(), **documented(400, 401, 403, 404, 409, 422, 503)},
    )
    def roll_back(question: RollBackQuestion) -> EntryMessage:
        try:
            return entry_message(desk.loop.roll_back(question.reason, question.version))
        except PlanFileError as error:
            raise ProblemError(404, "no-version", str(error)) from error

    @routes.post(
        "/v1/step", status_code=202, summary="Take the next step now", responses=documented(401, 403, 422, 503)
    )
    def step() -> AcceptedMessage:
        desk.loop.step_soon()
        return AcceptedMessage(accepted="a step is due now")

    return routes
