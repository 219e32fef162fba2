"""When a question may be asked again: only if the router could not be reached, and only within the deadline."""

from __future__ import annotations

import random
from collections.abc import Iterator

import grpc

from router.client.settings import ClientSettings


def may_retry(code: grpc.StatusCode) -> bool:
    """Whether nobody answered. A refusal is an answer; an overloaded router is not helped by more questions."""
    return code is grpc.StatusCode.UNAVAILABLE


def backoffs(settings: ClientSettings, generator: random.Random) -> Iterator[float]:
    """Pauses before each retry, in seconds: doubling, with full jitter in their upper half."""
    pause_s = settings.first_backoff_s
    while True:
        yield pause_s * (0.5 + 0.5 * generator.random())
        pause_s = min(2.0 * pause_s, settings.most_backoff_s)
