"""A flow control inside a run: conservation, cancels in the queue, retries after a hint, equal books."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from data.catalog.types import ServiceTimes
from data.errors import SettingError
from data.fleet.types import Fleet, Model, Site, Tenant, WorkloadClass
from data.types import Outcome, Request, Slo, Status
from planner.arm import flow_of, parse_arm
from planner.sim.clients import Clients
from planner.sim.result import RunResult
from planner.sim.run import simulate
from planner.sim.settings import SimSettings
from planner.sim.waiting_room import FlowFactory
from router.endpoints import EndpointSpec, EndpointTable
from router.goodput import GoodputBook
from router.registry import make_policy
from router.slomax.feedback_settings import FeedbackSettings
from router.slomax.registry import FLOWS, flow_factory

TIMES = ServiceTimes(0.003, 0.0003, 2e-8, 0.011, 0.0004, 3e-7, 0.001)
CHAT = WorkloadClass("chat", Slo(ttft_s=1.0, tpot_s=0.1), 1.0, 500, 20, 6.0)
BULK = WorkloadClass("bulk", Slo(deadline_s=60.0), 1.0, 500, 20)


def fleet(tenants: tuple[Tenant, ...] = (Tenant("t"),), chat: WorkloadClass = CHAT) -> Fleet:
    return Fleet(
        "f", (Site("B", "compute", "z"),), (), (), (Model("m", "1", "m", 4000),), (), (chat, BULK), tenants
    )


def requests(count: int, gap_s: float) -> list[Request]:
    kinds = ("chat", "bulk", "chat")
    return [Request(i, i * gap_s, 600, 20, 50, workload_class=kinds[i % 3], tenant="t") for i in range(count)]


class Books:
    """A sink that keeps the rows."""

    def __init__(self) -> None:
        self.outcomes: list[dict[str, Any]] = []
        self.decisions: list[dict[str, Any]] = []

    def decision(self, row: dict[str, Any]) -> None:
        self.decisions.append(row)

    def outcome(self, row: dict[str, Any]) -> None:
        self.outcomes.append(row)


class Noting:
    """A policy that keeps the outcomes it is told of."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.name, self.ended = inner, inner.name, list[Outcome]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def finished(self, request: Any, outcome: Outcome) -> None:
        self.ended.append(outcome)
        self.inner.finished(request, outcome)


def run(
    flow: FlowFactory | None, count: int = 200, gap_s: float = 0.03, world: Fleet | None = None, **settings: Any
) -> tuple[RunResult, Noting, Books]:
    specs = [EndpointSpec(str(i), "B", "m@1", "c", "X", 1, TIMES, 50_000, 512, 16, 4000) for i in range(2)]
    table = EndpointTable(specs)
    policy, sink = Noting(make_policy("least_request", {}, table, 1)), Books()
    result = simulate(
        world or fleet(), specs, requests(count, gap_s), policy, SimSettings(seed=3, **settings),
        table=table, sink=sink, flow=flow,
    )  # fmt: skip
    return result, policy, sink


@pytest.mark.parametrize("name", FLOWS)
def test_every_flow_control_ends_every_request_once(name: str) -> None:
    result, policy, _ = run(flow_factory(name, {}), cancel_share=0.2, retries=1)
    total = result.total
    assert total.running == 0
    assert total.offered == 200 == total.completed + total.cancelled + total.failed + total.rejected
    assert len({(one.request_id, one.attempt) for one in policy.ended}) == len(policy.ended)


@pytest.mark.parametrize("name", FLOWS)
def test_under_light_load_nobody_waits_and_nobody_is_refused(name: str) -> None:
    result, _, _ = run(flow_factory(name, {}), count=60, gap_s=1.0)
    assert result.total.completed == 60
    assert result.total.ttft.p99 < 0.5


def test_slomax_gets_more_good_tokens_out_of_an_overload() -> None:
    without, _, _ = run(None, count=400, gap_s=0.05)
    with_it, _, _ = run(flow_factory("slomax", {}), count=400, gap_s=0.05)
    assert with_it.total.goodput_tokens_per_s > 1.3 * without.total.goodput_tokens_per_s
    assert with_it.by_class["bulk"].attainment_offered == 1.0


def test_a_client_that_leaves_the_queue_is_never_sent() -> None:
    result, policy, sink = run(flow_factory("slomax", {}), count=300, gap_s=0.02)
    gone = [row for row in sink.outcomes if row["status"] == Status.CANCELLED]
    sent = {one.request_id for one in policy.ended}
    in_queue = [row for row in gone if row["request_id"] not in sent]
    assert in_queue
    assert len(gone) == result.total.cancelled  # every end stands in the log, those in the queue too
    assert len(sent) == 300 - len(in_queue)
    decided = {row["request_id"] for row in sink.decisions}
    assert decided == set(range(300))


def test_refusals_carry_a_hint_that_clients_respect() -> None:
    """F053: nobody comes back before the hint of a refusal."""
    world = fleet((Tenant("t", requests_per_s_budget=0.5),), replace(CHAT, client_timeout_s=None))
    result, _, sink = run(
        flow_factory("slomax", {"budget_burst_s": 2.0}),
        count=5,
        gap_s=0.01,
        world=world,
        retries=9,
        retry_backoff_s=0.01,
    )
    refused = [row for row in sink.outcomes if row["status"] == Status.REJECTED]
    assert {row["reason"] for row in refused} == {"budget_exhausted"}
    assert result.total.completed == 5
    assert result.total.repeats == len(refused)
    decided = sorted((row["request_id"], row["decided_s"]) for row in sink.decisions)
    for (one, at_s), (two, then_s) in pairwise(decided):
        if one == two:
            assert then_s - at_s >= 1.0


def test_f053_a_client_waits_for_the_longer_of_back_off_and_hint() -> None:
    """F053: the hint wins over a shorter back-off, and a longer back-off over the hint."""
    clients = Clients(SimSettings(retries=3, retry_backoff_s=1.0))
    assert clients.retry_after_s(0, Status.REJECTED, "overloaded", 7.0) == 7.0
    assert clients.retry_after_s(2, Status.REJECTED, "overloaded", 2.0) == 4.0


def test_f058_goodput_holds_at_twice_the_load_with_clients_that_try_again() -> None:
    """F058: with retrying clients Goodput at twice the capacity stays at 80 % of that at capacity, or above."""
    flow = flow_factory("slomax", {})
    at_one, _, _ = run(flow, count=300, gap_s=0.12, retries=3)
    at_two, _, _ = run(flow, count=600, gap_s=0.06, retries=3)
    assert at_two.total.goodput_tokens_per_s >= 0.8 * at_one.total.goodput_tokens_per_s


def test_the_books_on_line_and_in_the_simulator_agree() -> None:
    """The same outcomes give the same counts through ``GoodputBook`` as in the run's own measures."""
    result, policy, _ = run(None, count=300, gap_s=0.04)
    book = GoodputBook()
    slos = {"chat": CHAT.slo, "bulk": BULK.slo}
    for _ in range(300):
        book.offered(("any", "t", "standard"))
    for outcome in policy.ended:
        book.ended((outcome.workload_class, "t", "standard"), outcome, slos[outcome.workload_class], again=False)
    for name, tally in book.by_class.items():
        if name == "any":
            continue
        group = result.by_class[name]
        assert (tally.completed, tally.met) == (group.completed, group.met)
        assert (tally.output_tokens, tally.good_tokens) == (group.output_tokens, group.good_output_tokens)
        assert tally.waste.late == group.wasted_tokens["late"]
        assert tally.abandoned == group.cancelled
    assert result.by_tier["standard"].met == book.total.met


def test_the_same_seed_gives_the_same_run_behind_a_flow_control() -> None:
    one, two = (run(flow_factory("slomax", {}), cancel_share=0.3, retries=2)[0] for _ in range(2))
    assert one.total == two.total


def test_an_arm_names_its_flow_control_and_its_settings() -> None:
    arm = parse_arm("least_request+slomax:backlog_s=0.2:pace=false")
    assert (arm.policy, arm.flow, dict(arm.flow_settings)) == (
        "least_request", "slomax", {"backlog_s": 0.2, "pace": False},
    )  # fmt: skip
    assert flow_of(arm) is not None
    assert flow_of(parse_arm("tokenpilot:harm_price=1e+0")) is None
    fed = flow_of(parse_arm("least_request+slomax:backlog_s=0.2+feedback:step_s=2.0"))
    assert fed is not None
    assert fed.feedback == FeedbackSettings(step_s=2.0)
    plain = flow_of(arm)
    assert plain is not None
    assert plain.feedback is None
    for wrong in (
        "least_request+nothing",
        "least_request+slomax:speed=1",
        "a+slomax",
        "least_request+slomax+slomax",
        "least_request+feedback",
        "least_request+slomax+feedback:speed=1",
        "least_request+slomax+feedback+feedback",
    ):
        with pytest.raises(SettingError):
            parse_arm(wrong)
