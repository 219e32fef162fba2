"""Parts of the flow control in the service: first arrivals, engines that load, the books of Goodput."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.catalog.types import ServiceTimes
from data.errors import SettingError
from data.types import Slo, Status
from router.endpoints import VACANT, EndpointSpec, EndpointTable
from router.flow.first_arrivals import KEPT_S, MOST, FirstArrivals
from router.flow.goodput_listener import MOST_OPEN, RETRY_S, GoodputListener
from router.flow.holding import ColdStarts
from router.observe.effective_settings import effective_settings
from router.serving.attempt_end import EXPIRED, AttemptEnd
from router.serving.open_leases import OpenLease
from router.serving.service_settings import ServiceSettings
from router.slomax.time_left import LEAST_LEFT_S, with_time_left
from router.types import RouteRequest

TIMES = ServiceTimes(p0=0.01, p1=5e-5, p2=0.0, d0=0.01, d1=0.0, d2=0.0)


def request(request_id: int = 1, attempt: int = 0, slo: Slo | None = None) -> RouteRequest:
    return RouteRequest(
        request_id, "m@1", "shop", "interactive", "A", 100, 50, 20.0, (), 16, "",
        slo or Slo(ttft_s=1.0, tpot_s=0.1), attempt=attempt,
    )  # fmt: skip


def lease(request_id: int = 1, attempt: int = 0, **fields: Any) -> OpenLease:
    values: dict[str, Any] = {
        "wire_id": 1, "lease": 1, "request": request(request_id, attempt), "endpoint": 0, "endpoint_id": "b",
        "gpu_type": "H100", "owner": "o", "decided_s": 100.0, "rtt_s": 0.0, "hit_tokens": 0.0, "lease_s": 60.0,
        "expires_s": 160.0, "ttft_s": 0.5,
    }  # fmt: skip
    return OpenLease(**(values | fields))


def test_a_retry_has_the_first_arrival_of_what_failed_and_only_soon_f049() -> None:
    """F049: the arrival is kept for a retry, not for a new request, not for ever, and not twice."""
    known = FirstArrivals()
    known.failed(1, 10.0, 20.0)
    assert known.of(1, 0, 25.0) == 25.0
    assert known.of(1, 1, 25.0) == 10.0
    assert known.of(1, 2, 26.0) == 26.0
    known.failed(2, 10.0, 20.0)
    assert known.of(2, 1, 21.0 + KEPT_S) == 21.0 + KEPT_S
    for number in range(MOST + 5):
        known.failed(number, 0.0, 0.0)
    assert len(known) == MOST


def test_engines_that_load_are_ready_their_load_time_after_they_were_seen_f107() -> None:
    """F107: the least time left among those of the model; one that is replaced starts anew."""
    specs = [
        EndpointSpec(str(i), "B", "m@1", "c", "X", 1, TIMES, 1000, 1000, 4, 1000, load_s=40.0 + 20 * i)
        for i in range(2)
    ]
    table = EndpointTable([*specs, VACANT])
    cold = ColdStarts(table)
    cold.look(0.0)
    assert cold.ready_in_s("m@1", 0.0) == np.inf
    table.ready[:] = False
    cold.look(10.0)
    assert cold.ready_in_s("m@1", 15.0) == 35.0
    assert cold.ready_in_s("m@2", 15.0) == np.inf
    assert cold.ready_in_s("m@1", 200.0) == 1.0
    table.put(0, EndpointSpec("new", "B", "m@1", "c", "X", 1, TIMES, 1000, 1000, 4, 1000, load_s=40.0))
    cold.look(20.0)
    assert cold.ready_in_s("m@1", 20.0) == 40.0
    table.ready[0] = True
    cold.look(25.0)
    assert cold.ready_in_s("m@1", 25.0) == 45.0


def test_targets_count_from_the_arrival_and_never_vanish() -> None:
    slo = Slo(ttft_s=2.0, tpot_s=0.1, deadline_s=10.0)
    left = with_time_left(request(slo=slo), 1.5).slo
    assert (left.ttft_s, left.tpot_s, left.deadline_s) == (0.5, 0.1, 8.5)
    assert with_time_left(request(slo=slo), 3.0).slo.ttft_s == LEAST_LEFT_S
    assert with_time_left(request(slo=slo), 0.0).slo is slo


def test_a_failure_is_repeated_if_it_comes_again_and_failed_if_not_f063() -> None:
    """F063: attempts are told apart, and the request counts once."""
    books = GoodputListener(lambda _: "standard")
    failed = AttemptEnd(Status.FAILED, "error_mid_stream", 10)
    done = AttemptEnd(Status.COMPLETED, "", 20, e2e_s=1.0)
    books.placed(lease(), "b", (), 0.0)
    books.ended(lease(), failed, 101.0)
    books.placed(lease(attempt=1, decided_s=102.0), "b", (), 0.0)
    books.ended(lease(attempt=1, decided_s=102.0), failed, 103.0)
    books.placed(lease(attempt=2, decided_s=104.0), "b", (), 0.0)
    books.ended(lease(attempt=2, decided_s=104.0), done, 105.0)
    tally = books.book.by_class["interactive"]
    assert (tally.offered, tally.completed, tally.met, tally.repeats, tally.failed) == (1, 1, 1, 2, 0)
    assert tally.waste.by_cause() == {"late": 0, "cancelled": 0, "failed": 0, "repeated": 220, "preempted": 0}
    books.placed(lease(2), "b", (), 0.0)
    books.ended(lease(2), AttemptEnd(Status.FAILED, EXPIRED, 5), 110.0)
    assert tally.failed == 0
    books.placed(lease(3, decided_s=111.0 + RETRY_S), "b", (), 0.0)
    assert (tally.failed, tally.waste.failed, tally.running) == (1, 105, 1)


def test_late_tokens_are_waste_and_the_queue_counts() -> None:
    books = GoodputListener(lambda _: "guaranteed")
    books.placed(lease(), "b", (), 0.0)
    books.ended(lease(queued_s=0.6), AttemptEnd(Status.COMPLETED, "", 20, e2e_s=1.0), 101.0)
    assert books.book.by_tier["guaranteed"].waste.late == 120
    assert books.book.by_tenant["shop"].good_tokens == 0


@pytest.mark.parametrize("more", [0, 3])
def test_failures_that_wait_for_a_retry_are_bounded(more: int) -> None:
    books = GoodputListener(lambda _: "standard")
    for number in range(MOST_OPEN + more):
        books.placed(lease(number), "b", (), 0.0)
        books.ended(lease(number), AttemptEnd(Status.FAILED, EXPIRED, 1), 100.0)
    assert books.book.total.failed == more


def test_the_flow_control_of_a_service_is_checked_and_shown() -> None:
    settings = ServiceSettings(Path("fleet.yaml"), flow_settings={"backlog_s": 0.2})
    made = settings.make_flow()
    assert made is not None
    assert (made.name, made.settings.backlog_s) == ("slomax", 0.2)  # type: ignore[attr-defined]
    shown = {one.name: (one.value, one.source) for one in effective_settings(settings)}
    assert shown["flow"] == ("slomax", "default")
    assert shown["flow.backlog_s"] == (0.2, "flag")
    assert shown["flow.reserve"] == (0.25, "default")
    assert ServiceSettings(Path("fleet.yaml"), flow="none").make_flow() is None


@pytest.mark.parametrize(
    ("flow", "given", "field"),
    [("none", {"backlog_s": 0.2}, "flow_settings"), ("nine", {}, "flow"), ("slomax", {"backlog": 0.2}, "backlog")],
)
def test_a_wrong_flow_control_is_refused_by_name(flow: str, given: dict[str, float], field: str) -> None:
    with pytest.raises(SettingError) as caught:
        ServiceSettings(Path("fleet.yaml"), flow=flow, flow_settings=given).make_flow()
    assert caught.value.field == field
