"""Laws of a run that hold whatever breaks: conservation, release, repeatability, and queueing theory."""

from __future__ import annotations

import pickle
import tracemalloc
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.catalog.types import ServiceTimes
from data.fleet.types import EngineSettings, Fleet, Link, Model, Site, Tenant, WorkloadClass
from data.types import NO_PARENT, Outcome, Request, Slo
from planner.sim.arrivals import Arrivals
from planner.sim.changes import Drain, Start
from planner.sim.result import RunResult
from planner.sim.run import Run, simulate
from planner.sim.settings import FailureEvent, SimSettings
from router.endpoints import EndpointSpec, EndpointTable
from router.registry import make_policy
from router.slomax.registry import FLOWS, flow_factory

TIMES = ServiceTimes(0.003, 0.0003, 2e-8, 0.011, 0.0004, 3e-7, 0.001)
COUNTS = (
    "inflight",
    "inflight_uncached_tokens",
    "inflight_tokens",
    "decoding",
    "sent_since_report",
    "sent_uncached_since_report",
)


def fleet(timeout_s: float | None = None, rtt_s: float = 0.01) -> Fleet:
    engine = EngineSettings(256, 6, 16)
    return Fleet(
        name="laws",
        sites=(Site("A", "entry", "home"), Site("B", "compute", "home"), Site("C", "compute", "away")),
        links=(Link("A", "B", rtt_s, 1.0), Link("A", "C", rtt_s * 3, 1.0)),
        pools=(),
        models=(Model("m", "1", "m", 4000, engine),),
        configs=(),
        classes=(
            WorkloadClass("chat", Slo(ttft_s=0.5, tpot_s=0.05), 1.0, 500, 20, timeout_s),
            WorkloadClass("bulk", Slo(deadline_s=20.0)),
        ),
        tenants=(Tenant("open"), Tenant("local", residency_zones=("home",))),
    )


def specs(count: int, kv_tokens: int = 1600) -> list[EndpointSpec]:
    return [
        EndpointSpec(str(i), "BC"[i % 2], "m@1", "c", "X", 1, TIMES, kv_tokens, 256, 6, 4000, 16, load_s=1.0)
        for i in range(count)
    ]


class Counting:
    """Any policy, with its notices counted."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.name = inner.name
        self.sent: Counter[tuple[int, int]] = Counter()
        self.ended: Counter[tuple[int, int]] = Counter()
        self.firsts: Counter[tuple[int, int]] = Counter()

    def choose(self, request: Any, candidates: Any, view: Any) -> int:
        assert len(candidates)
        return int(self.inner.choose(request, candidates, view))

    def dispatched(self, request: Any, endpoint: int, view: Any) -> None:
        self.sent[request.request_id, request.attempt] += 1
        self.inner.dispatched(request, endpoint, view)

    def first_token(self, request: Any, endpoint: int, now_s: float, ttft_s: float) -> None:
        assert ttft_s > 0
        self.firsts[request.request_id, request.attempt] += 1
        self.inner.first_token(request, endpoint, now_s, ttft_s)

    def finished(self, request: Any, outcome: Outcome) -> None:
        self.ended[request.request_id, outcome.attempt] += 1
        self.inner.finished(request, outcome)

    def endpoint_reset(self, endpoint: int) -> None:
        self.inner.endpoint_reset(endpoint)


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    seed = draw(st.integers(0, 10_000))
    rng = np.random.default_rng(seed)
    count = draw(st.integers(1, 60))
    replicas = draw(st.integers(1, 4))
    at = np.sort(rng.uniform(0, draw(st.sampled_from([0.5, 5.0, 20.0])), count))
    requests = []
    for i in range(count):
        tokens = int(rng.integers(1, 900))
        blocks = -(-tokens // 64)
        shared = int(rng.integers(0, 5))
        hashes = tuple(1000 + j if j < shared else i * 100_000 + j for j in range(blocks))
        output = int(rng.integers(1, 80))
        parent = int(rng.integers(0, i)) if i and rng.random() < 0.2 else NO_PARENT
        requests.append(
            Request(
                i, float(at[i]), tokens, output, output + 50, hashes, 64,
                workload_class=("chat", "bulk")[i % 2], tenant=("open", "local")[i % 3 == 0],
                parent_id=parent, think_time_s=0.3,
            )
        )  # fmt: skip
    kinds = st.sampled_from(["crash", "slow", "hang"])
    failures = tuple(
        FailureEvent(draw(st.floats(0, 10)), draw(st.integers(0, replicas - 1)), kind, draw(st.floats(0.1, 4)))
        for kind in draw(st.lists(kinds, max_size=4))
    )
    changes = draw(st.lists(st.tuples(st.booleans(), st.floats(0, 10), st.integers(0, replicas - 1)), max_size=3))
    return {
        "requests": requests,
        "specs": specs(replicas),
        "fleet": fleet(draw(st.sampled_from([None, 0.3, 2.0])), draw(st.sampled_from([0.0, 0.02]))),
        "policy": draw(st.sampled_from(["least_request", "power_of_two", "kv_cost_dynamo", "round_robin"])),
        "flow": draw(st.sampled_from([None, "slomax", *FLOWS])),
        "settings": SimSettings(
            seed=seed,
            step_noise=draw(st.sampled_from([0.0, 0.1])),
            cancel_share=draw(st.sampled_from([0.0, 0.4])),
            retries=draw(st.integers(0, 2)),
            retry_backoff_s=0.2,
            failures=failures,
            time_limit_s=draw(st.sampled_from([None, None, 6.0])),
            timeline_s=0.5,
        ),
        "starts": tuple(Start(at_s, row) for starts, at_s, row in changes if starts),
        "drains": tuple(Drain(at_s, row) for starts, at_s, row in changes if not starts),
    }


def run(world: dict[str, Any]) -> tuple[Run, RunResult, Counting, EndpointTable]:
    table = EndpointTable(world["specs"])
    policy = Counting(make_policy(world["policy"], {}, table, 3))
    flow = None if world.get("flow") is None else flow_factory(world["flow"], {})
    requests = iter(world["requests"])
    whole = Run(world["fleet"], world["specs"], requests, policy, world["settings"], table, None, flow)
    whole.begin(world["starts"], world["drains"])
    whole.loop(None)
    return whole, whole.result(0.0), policy, table


@given(worlds())
@settings(max_examples=150, deadline=None)
def test_nothing_is_lost_whatever_breaks(world: dict[str, Any]) -> None:
    whole, result, policy, table = run(world)
    total = result.total
    groups = [total, *result.by_class.values(), *result.by_tenant.values()]
    for group in groups:
        ended = group.completed + group.failed + group.cancelled + group.rejected
        assert group.offered == ended + group.running
        assert 0 <= group.met <= group.completed
        assert group.good_output_tokens <= group.output_tokens
        assert group.ttft.count == group.e2e.count == group.completed
    for split in (result.by_class, result.by_tenant, result.by_tier):
        for name in ("offered", "completed", "cancelled", "good_output_tokens", "repeats"):
            assert sum(getattr(group, name) for group in split.values()) == getattr(total, name)
    assert total.running == whole.simulation.open_requests
    if world["settings"].time_limit_s is None:
        assert total.running == 0
        assert total.offered == len(world["requests"])
    assert result.residency_breaches == 0
    assert set(policy.sent.values()) <= {1}
    assert set(policy.ended.values()) <= {1}
    assert set(policy.firsts.values()) <= {1}
    assert set(policy.ended) <= set(policy.sent)
    for replica in whole.engines.replicas:
        cache = replica.cache
        assert cache.used + cache.cached_free + cache.free == cache.capacity
        assert min(cache.used, cache.cached_free, cache.free) >= 0
    waiting = 0 if whole.room is None else sum(queue.requests for queue in whole.room.flow.status(1e9).queues)
    assert waiting == (0 if whole.room is None else len(whole.room))
    if total.running == 0:
        assert waiting == 0
        assert policy.sent == policy.ended
        assert len(whole.router.book) == 0
        for name in COUNTS:
            assert not getattr(table, name).any(), name
        assert whole.lifecycle.in_flight == [0] * len(table)
        # An engine learns of a last cancel only when its step ends; nothing but that may be left.
        for replica in whole.engines.replicas:
            assert all(sequence.cancelled for sequence in replica.queue.running)
            assert not replica.queue.waiting


def comparable(result: RunResult) -> bytes:
    return pickle.dumps(replace(result, wall_s=0.0))


@given(worlds())
@settings(max_examples=25, deadline=None)
def test_the_same_seed_gives_the_same_bytes(world: dict[str, Any]) -> None:
    assert comparable(run(world)[1]) == comparable(run(world)[1])


def test_another_seed_gives_another_run() -> None:
    rows = [Request(i, i * 0.1, 100, 20, 64) for i in range(50)]
    one, two = (
        simulate(
            fleet(), specs(2), rows, make_policy("round_robin", {}, table, 1), SimSettings(seed=seed), table=table
        )
        for seed in (1, 2)
        for table in [EndpointTable(specs(2))]
    )
    assert one.total.e2e.mean != two.total.e2e.mean


def test_the_index_ends_up_with_what_the_engines_hold() -> None:
    rng = np.random.default_rng(1)
    rows = []
    for i in range(300):
        root, length = int(rng.integers(0, 12)), int(rng.integers(1, 9))
        hashes = tuple(root * 1000 + j for j in range(length))
        rows.append(Request(i, i * 0.05, 64 * length, 5, 32, hashes, 64))
    world = {
        "requests": rows, "specs": specs(3), "fleet": fleet(), "policy": "kv_cost_dynamo",
        "settings": SimSettings(seed=2, failures=(FailureEvent(6.0, 1, "crash", 0.5),)),
        "starts": (), "drains": (),
    }  # fmt: skip
    whole, result, _, _ = run(world)
    assert result.total.hit_rate > 0.2
    whole.router.observer.refresh(1e9)
    for row, replica in enumerate(whole.engines.replicas):
        assert whole.router.index.resident(row) == replica.cache.resident() > 0
    assert whole.router.index.unmatched_removes == 0


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_server_at_a_time_is_an_m_d_1_queue(load: float) -> None:
    """One seat, equal requests, Poisson arrivals: mean wait = load · service / (2 · (1 − load))."""
    engine = EngineSettings(4096, 1, 16, prefix_caching=False)
    world = fleet(rtt_s=0.0)
    world = replace(
        world, models=(Model("m", "1", "m", 4000, engine),), links=(), sites=(Site("B", "compute", "home"),)
    )
    service_s = 0.003 + 0.0003 * 100 + 2e-8 * 100 * 50 + 0.001
    rng = np.random.default_rng(11)
    at = np.cumsum(rng.exponential(service_s / load, 20_000))
    rows = (Request(i, float(t), 100, 1, 8) for i, t in enumerate(at))
    table = EndpointTable([EndpointSpec("0", "B", "m@1", "c", "X", 1, TIMES, 16_000, 4096, 1, 4000, 16)])
    policy = make_policy("round_robin", {}, table, 1)
    result = simulate(
        world, table.specs, rows, policy, SimSettings(step_noise=0.0, scrape_period_s=60.0), table=table
    )
    wait_s = result.total.e2e.mean - service_s
    assert wait_s == pytest.approx(load * service_s / (2 * (1 - load)), rel=0.08)
    # Little's law: mean number in the system = rate · mean time.
    timeline = result.timeline
    inside = float(np.mean(timeline.waiting[:-1].sum(axis=1) + timeline.running[:-1].sum(axis=1)))
    expected = result.total.completed / result.duration_s * result.total.e2e.mean
    assert inside == pytest.approx(expected, rel=0.15)


def test_memory_does_not_grow_with_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    # What is kept of requests that have not begun or have ended is bounded, but by more than this test runs.
    monkeypatch.setattr("planner.sim.arrivals.REMEMBERED", 100)
    monkeypatch.setattr("planner.sim.run.Arrivals", partial(Arrivals, look_ahead=64))

    def peak(count: int) -> int:
        table = EndpointTable(specs(2))
        policy = make_policy("least_request", {}, table, 1)
        rows = (Request(i, i * 0.3, 300, 10, 64, tuple(i * 10 + j for j in range(4)), 64) for i in range(count))
        tracemalloc.start()
        settings_ = SimSettings(timeline_s=1e6)
        result = simulate(fleet(5.0), specs(2), rows, policy, settings_, table=table)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert result.total.completed == count
        return most

    peak(1500)  # fills the interpreter's own free lists
    # Less than one pointer and one number for each request more.
    assert peak(4500) - peak(1500) < 16 * 3000
