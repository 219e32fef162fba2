"""How the moves of a plan travel to the solver's own process and their order travels back: JSON behind a mark."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from typing import Any

from solver.move_order_cp_sat import MoveOrderLimits, try_cp_sat
from solver.move_order_problem import MoveAction, MoveProblem

MARK = b"moves\n"
"""No archive of ``solver.wire`` begins like this."""
REPORT_MARGIN_S = 0.15
"""Kept back from the deadline for sending the answer."""


def is_moves_request(body: bytes) -> bool:
    """Whether a message to the solver's process is about moves."""
    return body.startswith(MARK)


def pack_moves(problem: MoveProblem, hint: tuple[int, ...], limits: MoveOrderLimits, deadline_s: float) -> bytes:
    """The message; ``deadline_s`` is on the machine's monotonic clock."""
    content = {"problem": asdict(problem), "hint": hint, "limits": asdict(limits), "deadline_s": deadline_s}
    return MARK + json.dumps(content).encode()


def answer_moves(body: bytes) -> bytes:
    """Find the order that a message asks for, in this process."""
    content: dict[str, Any] = json.loads(body[len(MARK) :])
    given = content["problem"]
    actions = tuple(MoveAction(**action) for action in given.pop("actions"))
    problem = MoveProblem(actions, **{name: tuple(values) for name, values in given.items()})
    limits = MoveOrderLimits(**content["limits"])
    if not limits.deterministic:
        left_s = max(content["deadline_s"] - time.monotonic() - REPORT_MARGIN_S, 0.01)
        limits = replace(limits, time_limit_s=min(limits.time_limit_s, left_s))
    found, detail = try_cp_sat(problem, tuple(content["hint"]), limits)
    return json.dumps({"begin_s": found, "detail": detail}).encode()


def unpack_order(body: bytes) -> tuple[tuple[int, ...] | None, str]:
    """When each move begins (``None`` = no answer), and the solver's words."""
    content = json.loads(body)
    begin = content["begin_s"]
    return (None if begin is None else tuple(begin)), content["detail"]
