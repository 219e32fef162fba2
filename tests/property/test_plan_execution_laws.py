"""Laws of plans carried out in a run: GPUs are never over-committed, every plan is reached, nothing is lost."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data.catalog.load import load_catalog
from data.fleet.types import Fleet, GpuPool, Link, Model, Placed, ReplicaConfig, Site, Tenant, WorkloadClass
from data.plan import Move, PlanDocument, PlannedReplicas, PlanStatus, TrafficShare
from data.types import Request, Slo
from planner.fallback_order import fallback_problem
from planner.plan_execution import PlanExecution, TimedPlan, plan_execution
from planner.sim.run import Run, simulate
from planner.sim.settings import FailureEvent, SimSettings
from router.endpoints import EndpointTable
from router.registry import make_policy
from router.sites.registry import site_rule_factory
from solver.move_order_greedy import greedy_order

WHEN = "2026-01-01T00:00:00Z"
PLACES = (("s0", "chat-h100"), ("s0", "chat-a100"), ("s0", "wide-h100"), ("s1", "chat-h100"), ("s1", "wide-h100"))


def _fleet(rng: np.random.Generator) -> Fleet:
    return Fleet(
        name="laws",
        sites=(Site("door", "entry", "eu"), Site("s0", "compute", "eu"), Site("s1", "compute", "us")),
        links=(Link("door", "s0", 0.01, 10.0), Link("door", "s1", 0.05, 10.0)),
        pools=tuple(
            GpuPool(site, gpu, int(rng.integers(2, 7)))
            for site, gpu in (("s0", "H100"), ("s0", "A100"), ("s1", "H100"))
        ),
        models=(Model("chat", "v1", "llama-3.1-8b", 16_384), Model("wide", "v1", "llama-3.1-8b", 16_384)),
        configs=(
            ReplicaConfig("chat-h100", "chat@v1", "H100", 1),
            ReplicaConfig("chat-a100", "chat@v1", "A100", 1),
            ReplicaConfig("wide-h100", "wide@v1", "H100", 2),
        ),
        classes=(WorkloadClass("fast", Slo(ttft_s=2.0, tpot_s=0.1), 1.0, 500, 100),),
        tenants=(Tenant("t"),),
    )


def _counts(fleet: Fleet, rng: np.random.Generator) -> dict[tuple[str, str], int]:
    """Random replicas that fit the pools; something always stands."""
    left = {(pool.site, pool.gpu_type): pool.count for pool in fleet.pools}
    counts: dict[tuple[str, str], int] = {}
    for k in rng.permutation(len(PLACES)).tolist():
        site, name = PLACES[k]
        config = fleet.config(name)
        most = left[site, config.gpu_type] // config.tensor_parallel
        counts[site, name] = int(rng.integers(0, most + 1)) if counts or most == 0 else max(1, most // 2)
        left[site, config.gpu_type] -= counts[site, name] * config.tensor_parallel
    return counts


def _plan(fleet: Fleet, counts: dict[tuple[str, str], int], moves: tuple[Move, ...] = ()) -> PlanDocument:
    rows = tuple(
        PlannedReplicas(site, name, config.model, config.gpu_type, config.tensor_parallel, count, count % 2)
        for (site, name), count in sorted(counts.items())
        for config in (fleet.config(name),)
    )
    return PlanDocument(
        "p", None, WHEN, WHEN, WHEN, fleet.name, {}, PlanStatus.OPTIMAL, 1.0, 1.0, 1.0, "b", rows, moves=moves
    )


def _requests(rng: np.random.Generator, count: int, span_s: float) -> list[Request]:
    """Half of them take minutes, so that drains outlast what the order of moves expects of them."""
    at = np.sort(rng.uniform(0, span_s, count))
    most = (300, 9000)
    return [
        Request(
            i, float(at[i]), int(rng.integers(50, 2000)), int(rng.integers(1, most[i // 2 % 2])), 10_000,
            model=("chat@v1", "wide@v1")[i % 2],
        )
        for i in range(count)
    ]  # fmt: skip


def _run(
    fleet: Fleet, execution: PlanExecution, requests: list[Request], failures: Any = ()
) -> tuple[Run, list[str], dict[str, int]]:
    """Run to the end, looking at every event whether a pool holds more GPUs than it has."""
    table = EndpointTable(execution.specs)
    quiet = SimSettings(seed=1, retries=2, failures=failures)
    policy = make_policy("least_request", {}, table, 1)
    run = Run(fleet, execution.specs, requests, policy, quiet, table, None, gpus=execution.gpus)
    broken: list[str] = []
    least: dict[str, int] = {}
    pools = {(pool.site, pool.gpu_type): pool.count for pool in fleet.pools}
    inner = run.events.run_next

    class Watched:
        """The queue of the run with a look after each event."""

        def __getattr__(self, name: str) -> Any:
            return getattr(run_events, name)

        def run_next(self) -> None:
            at_s = run_events.next_s
            inner()
            held = run.lifecycle.gpus_held()
            for model, gpus in _serving(run, execution).items():
                least[model] = min(least.get(model, gpus), gpus)
            broken.extend(f"{held[pool]} of {pools[pool]} at {at_s}" for pool in pools if held[pool] > pools[pool])

    run_events = run.events
    run.begin(execution.starts, execution.drains)
    run.follow(execution.switches)
    run.events = Watched()  # type: ignore[assignment]
    run.loop(None)
    return run, broken, least


def _serving(run: Run, execution: PlanExecution) -> Counter[str]:
    """GPUs of each model's replicas that are up and do not drain."""
    serving: Counter[str] = Counter({"chat@v1": 0, "wide@v1": 0})
    for row, spec in enumerate(execution.specs):
        if run.lifecycle.up(row) and not run.router.table.draining[row]:
            serving[spec.model] += spec.gpus
    return serving


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1_000_000), crash=st.booleans())
def test_random_sequences_of_plans_never_take_gpus_twice_and_are_carried_out(seed: int, crash: bool) -> None:
    rng = np.random.default_rng(seed)
    fleet = _fleet(rng)
    targets = [_counts(fleet, rng) for _ in range(int(rng.integers(2, 5)))]
    # Some plans take force before the one before them is carried out.
    at = np.concatenate([[0.0], np.cumsum(rng.choice([5.0, 40.0, 200.0], len(targets) - 1))])
    plans = [TimedPlan(_plan(fleet, counts), float(at_s)) for counts, at_s in zip(targets, at, strict=True)]
    execution = plan_execution(fleet, load_catalog(), plans)
    failures = (FailureEvent(20.0, 0, "crash", 30.0),) if crash else ()
    requests = _requests(rng, 60, float(at[-1]) + 10.0)
    # The last one arrives long after all moves can have ended.
    requests.append(Request(len(requests), float(at[-1]) + 2000.0, 100, 5, 400, model="chat@v1"))
    run, broken, _ = _run(fleet, execution, requests, failures)
    assert broken == []
    total = run.result(0.0).total
    assert total.offered == total.completed + total.failed + total.cancelled + total.rejected
    wanted: Counter[tuple[str, str]] = Counter()
    for (site, name), count in targets[-1].items():
        config = fleet.config(name)
        wanted[site, config.gpu_type] += count * config.tensor_parallel
    assert +run.lifecycle.gpus_held() == +wanted


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1_000_000))
def test_no_model_falls_below_what_it_has_before_and_after(seed: int) -> None:
    """The plan thinks that replicas load within a second: drains wait for those that replace them all the same."""
    rng = np.random.default_rng(seed)
    fleet, catalog = _fleet(rng), load_catalog()
    old, new = _counts(fleet, rng), _counts(fleet, rng)
    change = {place: new[place] - old[place] for place in PLACES if new[place] != old[place]}
    problem, places, models = fallback_problem(fleet, lambda place: 1.0, old, change)
    order = greedy_order(problem)
    if order.note:
        return  # these two placements cannot be joined without a gap
    begin: dict[tuple[str, str], list[float]] = defaultdict(list)
    for place, moment in zip(places, order.begin_s, strict=True):
        begin[place].append(float(moment))
    moves = tuple(
        Move(*place, count, 0.0, "moves", begin_s=tuple(sorted(begin[place])), lasts_s=1.0)
        for place, count in change.items()
    )
    plans = [TimedPlan(_plan(fleet, old), 0.0), TimedPlan(_plan(fleet, new, moves), 20.0)]
    execution = plan_execution(fleet, catalog, plans)
    _, broken, least = _run(fleet, execution, _requests(rng, 80, 60.0))
    assert broken == []
    for model, floor in zip(models, problem.floors, strict=True):
        assert least[model] >= floor


def test_a_drain_waits_for_the_replica_that_replaces_it() -> None:
    """The start at s1 takes longer than its plan thought: the replica at s0 serves until it is ready."""
    fleet = _fleet(np.random.default_rng(0))
    moves = (
        Move("s0", "chat-a100", -1, 0.0, "moves", begin_s=(5.0,), lasts_s=5.0),
        Move("s1", "chat-h100", 1, 0.0, "moves", begin_s=(0.0,), lasts_s=5.0),
    )
    first, second = _plan(fleet, {PLACES[1]: 1}), _plan(fleet, {PLACES[3]: 1}, moves)
    execution = plan_execution(fleet, load_catalog(), [TimedPlan(first, 0.0), TimedPlan(second, 10.0)])
    (start,), (drain,) = execution.starts, execution.drains
    assert (start.at_s, drain.at_s, drain.after) == (10.0, 15.0, (start.endpoint,))
    assert start.load_s is not None
    assert start.load_s > 5.0
    requests = [Request(i, float(i), 100, 5, 50, model="chat@v1") for i in range(120)]
    run, _, _ = _run(fleet, execution, requests)
    total = run.result(0.0).total
    assert total.completed == 120
    assert total.rejected == 0


def test_the_plan_s_own_moments_are_kept_and_scaled_and_prewarmed_copies_load_faster() -> None:
    fleet, catalog = _fleet(np.random.default_rng(0)), load_catalog()
    moves = (Move("s0", "chat-h100", 2, 0.0, "more", begin_s=(0.0, 60.0), lasts_s=36.0),)
    for warm, name in ((1, "warm_load_s"), (0, "load_s")):
        first = _plan(fleet, {PLACES[0]: 0, PLACES[1]: 1})
        rows = tuple(replace(row, prewarmed=warm) for row in first.replicas)
        plans = [
            TimedPlan(replace(first, replicas=rows), 0.0),
            TimedPlan(_plan(fleet, {PLACES[0]: 2, PLACES[1]: 1}, moves), 100.0),
        ]
        made = plan_execution(fleet, catalog, plans, time_scale=0.5)
        assert [start.at_s for start in made.starts] == [100.0, 130.0]
        facts = catalog.facts("llama-3.1-8b", "H100", 1)
        assert made.starts[0].load_s == 0.5 * getattr(facts, name)


def test_what_stands_before_the_first_plan_is_changed_by_its_moves() -> None:
    fleet = _fleet(np.random.default_rng(0))
    plan = _plan(fleet, {PLACES[0]: 1, PLACES[1]: 1})
    made = plan_execution(fleet, load_catalog(), [TimedPlan(plan, 0.0)], [Placed("s0", "chat-a100", 2)])
    assert [spec.endpoint_id for spec in made.specs] == ["s0/chat-a100/0", "s0/chat-a100/1", "s0/chat-h100/0"]
    assert [(s.endpoint, d.endpoint) for s, d in zip(made.starts, made.drains, strict=True)] == [(2, 1)]
    assert [switch.plan for switch in made.switches] == [plan]


def test_a_plan_that_takes_force_moves_traffic_and_is_told() -> None:
    """Shares of the first plan send all to s0, those of the second all to s1; the replicas stay."""
    fleet = _fleet(np.random.default_rng(0))
    counts = {PLACES[0]: 1, PLACES[3]: 1}
    plans = [
        TimedPlan(replace(_plan(fleet, counts), plan_id=site, shares=(_all_to(site),)), at_s)
        for site, at_s in (("s0", 0.0), ("s1", 50.0))
    ]
    execution = plan_execution(fleet, load_catalog(), plans)
    assert execution.gpus is None
    table, told = EndpointTable(execution.specs), []
    result = simulate(
        fleet,
        execution.specs,
        [Request(i, float(i), 100, 5, 50, model="chat@v1", origin="door") for i in range(100)],
        make_policy("least_request", {}, table, 1),
        SimSettings(seed=1),
        table=table,
        sites=site_rule_factory("shares_only", {}),
        shares=execution.shares,
        switches=execution.switches,
        on_plan=lambda plan, now_s: told.append((plan.plan_id, now_s)),
    )
    assert told == [("s1", 50.0)]
    assert (result.extra["sent_to_s0"], result.extra["sent_to_s1"]) == (50.0, 50.0)


def _all_to(site: str) -> TrafficShare:
    return TrafficShare("chat@v1", "fast", "t", "door", site, 1.0)
