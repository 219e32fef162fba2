"""How an attempt ended, from the one event that ends it: a status, and a reason in one word.

The last event decides, not the first status line: a stream that began well and then broke has failed. Wrong
requests (4xx) say nothing of an endpoint's health; 429 is news about its load.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from data.types import Status
from router.pb.v1 import router_pb2 as pb

NO_OUTPUT = "no_output"
BEFORE_FIRST = "error_before_first_token"
MID_STREAM = "error_mid_stream"
TIMEOUT = "timeout"
BUSY = "engine_busy"
CLIENT_TIMEOUT = "client_timeout"
CLIENT_CANCEL = "client_cancel"
CLIENT_ERROR = "client_error"
EXPIRED = "lease_expired"
LEFT = "endpoint_left"
STOPPED = "router_stopped"
NEVER_SENT = "never_sent"
"""The caller had gone before it was told where to send the request."""
MOST_SECONDS = 7 * 86_400.0
MOST_TOKENS = 2**31 - 1
BLAMELESS_4XX = (408, 425, 429)
"""Statuses below 500 that are not the request's own fault."""


class InvalidEventError(Exception):
    """A report that can't be taken: a field is out of its range."""


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """What the terminal event says.

    Attributes:
        status: How the attempt ended.
        reason: Why, in one word; empty = completed.
        cached_tokens: Prefix hit that the engine reported; ``None`` = it said nothing.
        ttft_s: As the caller saw it from dispatch on; NaN = not told.
        e2e_s: The same to the end.
    """

    status: Status
    reason: str
    output_tokens: int
    cached_tokens: int | None = None
    preemptions: int = 0
    ttft_s: float = math.nan
    e2e_s: float = math.nan


def read_end(event: pb.ReportEvent, had_first_token: bool) -> AttemptEnd | None:
    """The end that an event tells of; ``None`` for a first token.

    Raises:
        InvalidEventError: Nothing is told, or a value is out of its range.
    """
    kind = event.WhichOneof("event")
    if kind == "first_token":
        seconds("first_token.ttft_s", event.first_token, "ttft_s")
        return None
    if kind == "finished":
        return _finished(event.finished)
    if kind == "cancelled":
        cancelled = event.cancelled
        reason = CLIENT_TIMEOUT if cancelled.timed_out else CLIENT_CANCEL
        return AttemptEnd(Status.CANCELLED, reason, _tokens(cancelled.output_tokens))
    if kind == "error":
        return _error(event.error, had_first_token)
    raise InvalidEventError("an event must be one of first_token, finished, cancelled, error")


def seconds(name: str, message: pb.FirstToken | pb.Finished, field: str) -> float:
    """An optional time; NaN = absent. ``InvalidEventError`` if negative, not finite or above a week."""
    if not message.HasField(field):
        return math.nan
    value: float = getattr(message, field)
    if not 0.0 <= value <= MOST_SECONDS:
        raise InvalidEventError(f"{name}: must be within 0 to {MOST_SECONDS:.0f} seconds")
    return value


def _tokens(value: int) -> int:
    if value > MOST_TOKENS:
        raise InvalidEventError(f"output_tokens: must be at most {MOST_TOKENS}")
    return value


def _finished(event: pb.Finished) -> AttemptEnd:
    tokens = _tokens(event.output_tokens)
    cached = event.cached_tokens if event.HasField("cached_tokens") else None
    if (cached or 0) > MOST_TOKENS or event.preemptions > 32_767:
        raise InvalidEventError("cached_tokens or preemptions: out of range")
    ttft, e2e = seconds("finished.ttft_s", event, "ttft_s"), seconds("finished.e2e_s", event, "e2e_s")
    if e2e < ttft:
        raise InvalidEventError("finished.e2e_s: must not be below ttft_s")
    if tokens == 0 and not event.finish_reason:
        return AttemptEnd(Status.FAILED, NO_OUTPUT, 0, cached, event.preemptions, ttft, e2e)
    return AttemptEnd(Status.COMPLETED, "", tokens, cached, event.preemptions, ttft, e2e)


def _error(event: pb.Error, had_first_token: bool) -> AttemptEnd:
    tokens, status = _tokens(event.output_tokens), event.http_status
    if status > 599 or 0 < status < 100:
        raise InvalidEventError("error.http_status: must be 0 or within 100 to 599")
    begun = had_first_token or tokens > 0
    if event.timed_out:
        return AttemptEnd(Status.FAILED, TIMEOUT, tokens)
    if status == 429:
        return AttemptEnd(Status.FAILED, BUSY, tokens)
    if 400 <= status < 500 and status not in BLAMELESS_4XX:
        return AttemptEnd(Status.CLIENT_ERROR, CLIENT_ERROR, tokens)
    return AttemptEnd(Status.FAILED, MID_STREAM if begun else BEFORE_FIRST, tokens)
