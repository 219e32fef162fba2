"""What clients report of their attempts, as evidence for the health of endpoints."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from types import SimpleNamespace
from typing import cast

import pytest

from data.types import RefusalReason, Status
from router.endpoints import EndpointTable
from router.feeds.breaker import Ending, Phase
from router.feeds.health import HealthBook
from router.serving import attempt_end
from router.serving.attempt_end import AttemptEnd
from router.serving.health_link import HealthLink, ending_of, p99_s
from router.serving.open_leases import OpenLease


def lease_of(
    number: int, decided_s: float = 0.0, predicted: tuple[float, float] = (0.1, 0.05), p90_s: float = 0.2
) -> OpenLease:
    known = SimpleNamespace(
        wire_id=number,
        endpoint=0,
        owner="c",
        decided_s=decided_s,
        rtt_s=0.0,
        predicted=predicted,
        ttft_p90_s=p90_s,
        request=SimpleNamespace(output_budget=100),
    )
    return cast(OpenLease, known)


@pytest.fixture
def health(make_table: Callable[..., EndpointTable]) -> HealthBook:
    return HealthBook(make_table(4))


@pytest.mark.parametrize(
    ("status", "reason", "ending"),
    [
        (Status.COMPLETED, "", Ending.COMPLETED),
        (Status.CLIENT_ERROR, attempt_end.CLIENT_ERROR, Ending.CLIENT_ERROR),
        (Status.FAILED, attempt_end.BUSY, Ending.THROTTLED),
        (Status.FAILED, attempt_end.TIMEOUT, Ending.TIMEOUT),
        (Status.FAILED, attempt_end.MID_STREAM, Ending.SERVER_ERROR),
        (Status.FAILED, attempt_end.BEFORE_FIRST, Ending.SERVER_ERROR),
        (Status.FAILED, attempt_end.NO_OUTPUT, Ending.SERVER_ERROR),
        (Status.CANCELLED, attempt_end.CLIENT_CANCEL, Ending.CANCELLED),
        (Status.CANCELLED, attempt_end.CLIENT_TIMEOUT, Ending.TIMEOUT),
        (Status.FAILED, attempt_end.EXPIRED, Ending.UNTOLD),
        (Status.FAILED, attempt_end.LEFT, Ending.UNTOLD),
        (Status.FAILED, attempt_end.STOPPED, Ending.UNTOLD),
    ],
)
def test_every_end_says_something_or_nothing(status: Status, reason: str, ending: Ending) -> None:
    """F006, F067: the terminal event decides."""
    assert ending_of(AttemptEnd(status, reason, 0)) is ending


def test_the_99th_percentile_lies_above_the_90th() -> None:
    assert 0.2 < p99_s(lease_of(1)) < 0.5
    assert p99_s(lease_of(1, p90_s=nan)) != p99_s(lease_of(1, p90_s=nan))


def test_a_client_that_tells_first_tokens_is_believed_when_it_tells_none(health: HealthBook) -> None:
    link = HealthLink(health)
    first = lease_of(1)
    link.placed(first, "B", (), 0.0)
    link.first_token(first, 0.1)
    link.ended(first, AttemptEnd(Status.COMPLETED, "", 5), 0.5)
    link.placed(lease_of(2, decided_s=1.0), "B", (), 0.0)
    link.refused(RefusalReason.OVERLOADED)
    link.unknown_lease()
    health.refresh(1.9)
    assert health.phase(0) is Phase.CLOSED
    health.refresh(3.0)
    assert health.phase(0) is Phase.SUSPECT


def test_of_a_client_that_tells_only_ends_a_whole_answer_is_awaited(health: HealthBook) -> None:
    HealthLink(health).placed(lease_of(1), "B", (), 0.0)
    health.refresh(10.0)
    assert health.phase(0) is Phase.CLOSED
    health.refresh(60.0)
    assert health.phase(0) is Phase.SUSPECT


def test_of_such_a_client_without_a_prediction_nothing_is_expected(health: HealthBook) -> None:
    link = HealthLink(health)
    lease = lease_of(1, predicted=(nan, nan))
    link.placed(lease, "B", (), 0.0)
    health.refresh(1e6)
    assert health.phase(0) is Phase.CLOSED
    link.ended(lease, AttemptEnd(Status.COMPLETED, "", 5), 1e6)
    assert health.phase(0) is Phase.CLOSED
