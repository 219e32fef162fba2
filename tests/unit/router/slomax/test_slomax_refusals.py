"""The contract of refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from data.types import RefusalReason
from router.slomax.refusals import JITTER, MOST_RETRY_S, STATUS, Refusals, retry_hint_s


def test_f052_every_reason_has_its_status() -> None:
    """F052: the status of every reason is pinned."""
    assert set(STATUS) == set(RefusalReason)
    contended = {RefusalReason(name) for name in ("overloaded", "queue_full", "expired", "budget_exhausted")}
    absent = {
        RefusalReason(name) for name in ("no_endpoint", "no_permitted_site", "all_unhealthy", "shutting_down")
    }
    assert {reason for reason, status in STATUS.items() if status == 429} == contended
    assert {reason for reason, status in STATUS.items() if status == 503} == absent
    assert all(400 <= status < 500 for reason, status in STATUS.items() if reason not in absent)


@pytest.mark.parametrize("after_s", [0.0, -5.0, 0.3, 7.0, 1e9, math.inf, math.nan])
def test_f052_the_hint_is_finite_and_a_second_at_least(after_s: float) -> None:
    """F052: Retry-After is at least one second and finite, whatever was predicted."""
    for draw in (0.0, 0.999):
        hint = retry_hint_s(after_s, draw)
        assert 1.0 <= hint <= MOST_RETRY_S * (1 + JITTER)


def test_f053_the_hint_follows_the_window_and_is_spread_upwards() -> None:
    """F053: a limit that resets in 7 s gives hints of 7 to 9 s, not all the same."""
    refusals = Refusals(np.random.default_rng(1))
    hints = [refusals.refuse(RefusalReason.BUDGET_EXHAUSTED, 7.0).retry_after_s for _ in range(50)]
    assert all(7.0 <= hint <= 9.0 for hint in hints)
    assert len(set(hints)) > 40
    again = Refusals(np.random.default_rng(1))
    assert hints == [again.refuse(RefusalReason.BUDGET_EXHAUSTED, 7.0).retry_after_s for _ in range(50)]
