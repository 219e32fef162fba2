"""When a question may be asked again: if the router could not be reached, or after a refusal that says when.

Both only within the deadline of the question.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import grpc

from router.client.query import Placement, Refusal
from router.client.settings import ClientSettings

HINT_JITTER = 0.1
"""Share by which a pause after a refusal is spread upwards, so that callers do not come back together."""


def may_retry(code: grpc.StatusCode) -> bool:
    """Whether nobody answered. A refusal is an answer; an overloaded router is not helped by more questions."""
    return code is grpc.StatusCode.UNAVAILABLE


def backoffs(settings: ClientSettings, generator: random.Random) -> Iterator[float]:
    """Pauses before each retry, in seconds: doubling, with full jitter in their upper half."""
    pause_s = settings.first_backoff_s
    while True:
        yield pause_s * (0.5 + 0.5 * generator.random())
        pause_s = min(2.0 * pause_s, settings.most_backoff_s)


def pause_after(answer: Placement | Refusal, left_s: float, generator: random.Random) -> float | None:
    """Pause before asking again: the hint of a refusal or somewhat more.

    ``None`` = do not ask again: it is no refusal, or one without a hint, or the time ``left_s`` is over by then.
    """
    if not isinstance(answer, Refusal) or answer.retry_after_s is None:
        return None
    pause_s = answer.retry_after_s * (1.0 + HINT_JITTER * generator.random())
    return pause_s if pause_s < left_s else None
