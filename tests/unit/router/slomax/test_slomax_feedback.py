"""The feedback in front of a flow control: what is thinned out, what is reported, what passes through."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from data.fleet.types import Fleet, Reservation, Tenant, WorkloadClass
from data.plan import PoolSplit
from data.types import Outcome, RefusalReason, Slo, Status
from router.slomax.context import FlowContext
from router.slomax.corrected import Corrected, Credit
from router.slomax.corrections import ANY_CLASS, Corrections
from router.slomax.expected import expected_of
from router.slomax.feedback import Feedback
from router.slomax.types import Admitted, Arrival, FlowStatus, Refused
from router.types import RouteRequest

SLO = Slo(ttft_s=1.0)
TENANTS = (
    Tenant("gold", tier="guaranteed", reservations=(Reservation("m@1", tokens_per_s=50.0),)),
    Tenant("lab", reservations=(Reservation("m@1", tokens_per_s=20.0, workload_class="chat"),)),
)
FLEET = Fleet("f", (), (), (), (), (), (WorkloadClass("chat", SLO),), TENANTS)


class Listening:
    """Admits everything and writes down what it is told."""

    name = "listening"

    def __init__(self) -> None:
        self.told: list[str] = []

    def offer(self, arrival: Arrival, now_s: float) -> Admitted:
        self.told.append("offer")
        return Admitted(np.array([0]))

    def cancel(self, ticket: int, now_s: float) -> bool:
        self.told.append("cancel")
        return True

    def next(self, now_s: float) -> None:
        self.told.append("next")

    def wakeup_s(self, now_s: float) -> float:
        self.told.append("wakeup_s")
        return 7.0

    def dispatched(self, request: RouteRequest, endpoint: int, now_s: float) -> None:
        self.told.append("dispatched")

    def first_token(self, request: RouteRequest, endpoint: int, now_s: float) -> None:
        self.told.append("first_token")

    def finished(self, request: RouteRequest, outcome: Outcome) -> None:
        self.told.append("finished")

    def abandoned(self, request: RouteRequest, now_s: float) -> None:
        self.told.append("abandoned")

    def endpoint_reset(self, endpoint: int) -> None:
        self.told.append("endpoint_reset")

    def set_quotas(self, quotas: Any, now_s: float) -> None:
        self.told.append("set_quotas")

    def set_fleet(self, fleet: Fleet, now_s: float, again: Any) -> list[int]:
        self.told.append("set_fleet")
        return [3]

    def status(self, now_s: float) -> FlowStatus:
        self.told.append("status")
        return FlowStatus((), ())


def _context() -> FlowContext:
    unused: Any = None
    return FlowContext(FLEET, unused, unused, unused, unused, unused)


def _request(number: int = 0, tenant: str = "lab", attempt: int = 0, slo: Slo = SLO) -> RouteRequest:
    return RouteRequest(number, "m@1", tenant, "chat", "A", 100, 50, 40.0, (), 16, "", slo, 1.0, attempt=attempt)


def _outcome(ttft_s: float, status: Status = Status.COMPLETED, tenant: str = "lab") -> Outcome:
    return Outcome(0, 0, status, "chat", tenant, 0, 0.0, 5.0, ttft_s, 5.0, 100, 0, 40)


def _corrected() -> tuple[Corrected, Listening]:
    behind = Listening()
    return Corrected(_context(), behind, Feedback()), behind


def _overload(flow: Corrected, request: RouteRequest, count: int = 100) -> None:
    for _ in range(count):
        flow.finished(request, _outcome(9.0))


@pytest.mark.parametrize(("share", "passed"), [(1.0, 1000), (0.7, 700), (0.25, 250), (0.1, 100)])
def test_a_share_is_let_through_evenly(share: float, passed: int) -> None:
    credit = Credit()
    went = [credit.passes(("m@1", "chat"), share) for _ in range(1000)]
    assert abs(sum(went) - passed) <= 1
    assert all(abs(sum(went[at : at + 100]) - passed / 10) <= 1 for at in range(0, 1000, 100))


def test_missed_targets_thin_out_what_arrives_but_not_the_guaranteed_tier() -> None:
    """F052, F053: 429, a listed reason, a finite hint of a second or more; nothing behind is charged."""
    flow, behind = _corrected()
    _overload(flow, _request())
    verdicts = [flow.offer(Arrival(_request(i), 10.0), 10.0) for i in range(100)]
    refused = [one for one in verdicts if isinstance(one, Refused)]
    assert len(refused) == 30
    assert behind.told.count("offer") == 70
    for one in refused:
        assert (one.reason, one.status) == (RefusalReason.OVERLOADED, 429)
        assert 1.0 <= one.retry_after_s < math.inf
    gold = [flow.offer(Arrival(_request(i, "gold"), 11.0), 11.0) for i in range(100)]
    assert not any(isinstance(one, Refused) for one in gold)


def test_what_was_lost_before_it_was_sent_is_no_evidence() -> None:
    """Requests that come back after a refusal are late whatever the engine does: no cut, so no spiral."""
    flow, _ = _corrected()
    _overload(flow, _request(slo=Slo(ttft_s=0.1)))
    flow.offer(Arrival(_request(), 10.0), 10.0)
    assert flow.feedback.corrections.admission == {}
    for _ in range(100):
        flow.finished(_request(slo=Slo(ttft_s=0.1)), _outcome(math.nan, Status.FAILED))
    flow.offer(Arrival(_request(), 20.0), 20.0)
    assert flow.feedback.corrections.admission != {}


def test_a_flood_of_repeats_is_thinned_out_and_first_attempts_are_not() -> None:
    """F058: further attempts go down to their budget."""
    flow, _ = _corrected()
    for second in range(10, 60, 5):
        for i in range(40):
            flow.offer(Arrival(_request(i), float(second)), float(second))
            for attempt in (1, 2, 3):
                flow.offer(Arrival(_request(i, attempt=attempt), float(second)), float(second))
        for _ in range(12):
            flow.finished(_request(), _outcome(0.5))
            flow.finished(_request(), _outcome(1.1))
    assert flow.feedback.corrections.repeats["m@1", "chat"] == pytest.approx(0.2 / 3.0)


def test_all_else_goes_to_the_flow_control_behind() -> None:
    flow, behind = _corrected()
    assert flow.name == "listening+feedback"
    assert flow.cancel(1, 0.0)
    assert flow.next(0.0) is None
    assert flow.wakeup_s(0.0) == 7.0
    flow.dispatched(_request(), 0, 0.0)
    flow.first_token(_request(), 0, 0.0)
    flow.finished(_request(), _outcome(0.5))
    flow.abandoned(_request(), 0.0)
    flow.endpoint_reset(0)
    flow.set_quotas({("m@1", "chat"): 5.0}, 0.0)
    assert flow.set_fleet(FLEET, 0.0, lambda one: one) == [3]
    assert flow.status(0.0) == FlowStatus((), ())
    assert behind.told == [
        "cancel", "next", "wakeup_s", "dispatched", "first_token", "finished", "abandoned", "endpoint_reset",
        "set_quotas", "set_fleet", "status",
    ]  # fmt: skip


def test_a_plan_is_compared_with_the_uncorrected_table() -> None:
    """A factor that the plan was made with is taken out again; promises without a class hold for all together."""
    rows = (
        PoolSplit("B", "m@1", "H100", "chat", 2, 90.0, {}, 0.9),
        PoolSplit("C", "m@1", "L40S", "chat", 1, 40.0, {}, 0.8),
    )
    expected = expected_of(FLEET, rows)
    assert expected.planned == {("m@1", "chat"): pytest.approx(150.0)}
    half = expected_of(FLEET, rows, share=0.5)
    assert half.planned == {("m@1", "chat"): pytest.approx(75.0)}
    assert half.guarantees[ANY_CLASS, "gold"] == 25.0
    assert expected.guarantees == {(ANY_CLASS, "gold"): 50.0, ("chat", "lab"): 20.0}
    owed = Corrections(debt={("chat", "lab"): 1.2, (ANY_CLASS, "lab"): 1.5})
    assert owed.debt_of("chat", "lab") == 1.5
    assert owed.debt_of("chat", "gold") == 1.0


def test_a_guarantee_over_all_classes_is_owed_in_any_of_them() -> None:
    feedback = Feedback(expected=expected_of(FLEET, ()))
    for _ in range(20):
        feedback.offered("m@1", "chat", "gold", 0, 40.0)
        feedback.ended("m@1", _outcome(9.0, tenant="gold"), SLO)
    found = feedback.step(10.0)
    assert found.debt[ANY_CLASS, "gold"] > 1.2
    assert found.debt_of("chat", "gold") == found.debt[ANY_CLASS, "gold"]
