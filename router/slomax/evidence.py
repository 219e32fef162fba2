"""What an ended attempt says of the pool that served it."""

from __future__ import annotations

import math

from data.types import Outcome, Slo, Status

UNTOLD = ("lease_expired", "router_stopped")
"""Reasons of attempts whose end nobody has told."""


def verdict(outcome: Outcome, slo: Slo) -> bool | None:
    """Whether an attempt met its targets; ``None`` = it tells nothing about the pool."""
    if outcome.reason in UNTOLD:
        return None
    if outcome.status is Status.COMPLETED:
        if math.isnan(outcome.ttft_s) and (slo.ttft_s, slo.tpot_s) != (None, None):
            return None  # nobody told when the first token came
        return slo.met(outcome.ttft_s, outcome.e2e_s, outcome.output_tokens)
    if outcome.status is Status.FAILED:
        return False
    if outcome.status is Status.CANCELLED and slo.ttft_s is not None:
        ttft_s = outcome.e2e_s if math.isnan(outcome.ttft_s) else outcome.ttft_s
        return False if ttft_s > slo.ttft_s else None
    return None
