"""The contract of a refusal in one table: reason, HTTP status, and when to try again.

429 where capacity or a budget exists but is contended, 503 where no endpoint may or can serve the request now, 4xx
where the request itself is at fault and another try would change nothing.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from data.types import RefusalReason
from router.slomax.types import Refused

STATUS: Final[dict[RefusalReason, int]] = {
    RefusalReason.NO_ENDPOINT: 503,
    RefusalReason.NO_PERMITTED_SITE: 503,
    RefusalReason.ALL_UNHEALTHY: 503,
    RefusalReason.OVERLOADED: 429,
    RefusalReason.QUEUE_FULL: 429,
    RefusalReason.EXPIRED: 429,
    RefusalReason.BUDGET_EXHAUSTED: 429,
    RefusalReason.CONTEXT_TOO_LONG: 400,
    RefusalReason.UNKNOWN_MODEL: 404,
    RefusalReason.UNKNOWN_TENANT: 403,
    RefusalReason.UNKNOWN_CLASS: 400,
    RefusalReason.INVALID_REQUEST: 400,
    RefusalReason.SHUTTING_DOWN: 503,
    RefusalReason.INVALID_REQUEST: 400,
    RefusalReason.SHUTTING_DOWN: 503,
}
"""Every reason stands here; a test holds the table complete."""
LEAST_RETRY_S: Final = 1.0
MOST_RETRY_S: Final = 120.0
NO_ENDPOINT_RETRY_S: Final = 5.0
"""Hint where nothing is known of when an endpoint comes back."""
JITTER: Final = 0.25
"""Share by which hints are spread upwards, so that those turned away together do not come back together."""


class Refusals:
    """Builds refusals; the only place that does.

    Args:
        rng: Draws the jitter.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def refuse(self, reason: RefusalReason, after_s: float = NO_ENDPOINT_RETRY_S) -> Refused:
        """A refusal with a hint of ``after_s`` (predicted drain or refill), bounded, never below it by jitter."""
        return Refused(reason, STATUS[reason], retry_hint_s(after_s, float(self._rng.random())))


def retry_hint_s(after_s: float, draw: float) -> float:
    """``after_s`` within [1 s, 120 s], then up to a quarter longer by ``draw`` in [0, 1); always finite."""
    base = MOST_RETRY_S if math.isnan(after_s) else min(max(after_s, LEAST_RETRY_S), MOST_RETRY_S)
    return base * (1.0 + JITTER * draw)
