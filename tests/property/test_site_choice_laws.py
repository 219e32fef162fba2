"""Laws of site choice: whatever fails, a chosen site is a permitted one, and every request ends once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data.catalog.types import ServiceTimes
from data.fleet.types import Fleet, GpuPool, Link, Model, ReplicaConfig, Site, Tenant, WorkloadClass
from data.types import Outcome, Request, Slo, Status
from planner.sim.run import simulate
from planner.sim.settings import FailureEvent, SimSettings, SiteFailure
from router.core import Decision, RouterCore
from router.endpoints import EndpointSpec, EndpointTable
from router.filters import FilterRules, FilterSettings
from router.leases import LeaseBook
from router.prefix import EventPrefixIndex
from router.registry import make_policy
from router.sites.base import SiteContext
from router.sites.registry import SITE_RULES, site_rule_factory
from router.sites.stage import SiteStage
from router.types import FleetView, RouteRequest

TIMES = ServiceTimes(0.002, 0.0001, 1e-9, 0.01, 0.0002, 1e-7, 0.001)
COMPUTE = ("B", "C", "D")
ZONES = {"B": "east", "C": "east", "D": "west"}
MODELS = ("m@1", "m@2")
TENANTS = (
    Tenant("open"),
    Tenant("east", residency_zones=("east",)),
    Tenant("west", residency_zones=("west",)),
    Tenant("named", sites=("C", "D"), models=("m@1",)),
)
FLEET = Fleet(
    "laws",
    (Site("A", "entry", "east"), *(Site(name, "compute", ZONES[name]) for name in COMPUTE)),
    tuple(Link(a, b, 0.005, 10.0) for a, b in ("AB", "AC", "AD", "BC", "BD")),
    tuple(GpuPool(name, "X", 8) for name in COMPUTE),
    tuple(Model("m", version, "m", 10_000) for version in "12"),
    tuple(ReplicaConfig(f"c{version}", f"m@{version}", "X", 1) for version in "12"),
    (WorkloadClass("chat", Slo(ttft_s=0.5, tpot_s=0.1), expected_output_tokens=10, client_timeout_s=4.0),),
    TENANTS,
)
SPECS = [
    EndpointSpec(f"{site}/{model}", site, model, f"c{model[-1]}", "X", 1, TIMES, 4000, 1024, 8, 10_000, 16, 1.0)
    for site in COMPUTE
    for model in MODELS
]


def permitted(tenant: str, model: str) -> set[str]:
    """From the fleet file alone, not through the filters."""
    who = FLEET.tenant(tenant)
    return {site.name for site in FLEET.sites if site.role == "compute" and FLEET.may_use(who, site, model)}


masks = st.lists(st.booleans(), min_size=6, max_size=6)


@settings(max_examples=80, deadline=None)
@given(
    rule=st.sampled_from(sorted(SITE_RULES)),
    ready=masks,
    healthy=masks,
    cuts=st.sets(st.tuples(st.sampled_from("ABC"), st.sampled_from(COMPUTE))),
    inflight=st.lists(st.integers(0, 9), min_size=6, max_size=6),
    asked=st.lists(
        st.tuples(
            st.sampled_from([one.name for one in TENANTS]),
            st.sampled_from(MODELS),
            st.sampled_from(["A", "B", "C", ""]),
            st.integers(0, 3),
            st.sampled_from(["completed", "failed", "cancelled", "none"]),
        ),
        min_size=1,
        max_size=12,
    ),
)
def test_a_chosen_site_is_permitted_linked_and_ready(rule, ready, healthy, cuts, inflight, asked):
    """F113: first tries, retries and fallbacks alike; a refusal only where nothing is left."""
    table = EndpointTable(SPECS)
    rules = FilterRules(FLEET, table, FilterSettings(0.9))
    made = site_rule_factory(rule, {})(SiteContext(FLEET))
    core = RouterCore(
        table, EventPrefixIndex(6), rules, make_policy("least_request", {}, table, 1), LeaseBook(table),
        SiteStage(made, FLEET, table, rules),
    )  # fmt: skip
    table.ready[:], table.healthy[:], table.inflight[:] = ready, healthy, inflight
    for origin, site in cuts:
        rules.set_link(origin, site, up=False)
    for number, (tenant, model, origin, attempt, end) in enumerate(asked):
        request = RouteRequest(
            number, model, tenant, "chat", origin, 100, 20, 10.0, (), 16, "s", Slo(ttft_s=0.5), attempt=attempt
        )
        view = FleetView(0.1 * number, table, core.prefixes, np.full(6, 0.005))
        usable = [
            row
            for row, spec in enumerate(SPECS)
            if spec.model == model
            and spec.site in permitted(tenant, model)
            and table.ready[row]
            and table.healthy[row]
            and (origin, spec.site) not in cuts
            and table.inflight[row] < 0.9 * 8
        ]
        decision = core.decide(request, view)
        if not isinstance(decision, Decision):
            assert not usable or rule == "local_only"
            continue
        assert decision.endpoint in usable
        lease = core.dispatch(request, decision)
        if end != "none":
            status = Status[end.upper()]
            core.finished(
                request,
                lease,
                Outcome(number, attempt, status, "chat", tenant, decision.endpoint, 0.0, 0.1 * number + 0.05,
                        float("nan"), 0.05, 100, 0, 0),
            )  # fmt: skip


failures = st.lists(
    st.one_of(
        st.builds(
            SiteFailure,
            at_s=st.floats(0, 8),
            site=st.sampled_from(COMPUTE),
            kind=st.sampled_from(["loss", "slow"]),
            duration_s=st.floats(0, 5),
            factor=st.floats(0.5, 20),
        ),
        st.builds(
            SiteFailure,
            at_s=st.floats(0, 8),
            site=st.sampled_from(["A", "B"]),
            kind=st.just("link_cut"),
            duration_s=st.floats(0, 5),
            peer=st.sampled_from(["C", "D"]),
            notice_s=st.floats(0, 3),
        ),
    ),
    max_size=5,
).map(tuple)
crashes = st.lists(
    st.builds(
        FailureEvent,
        at_s=st.floats(0, 8),
        endpoint=st.integers(0, 5),
        kind=st.sampled_from(["crash", "hang", "slow"]),
        duration_s=st.floats(0, 4),
    ),
    max_size=4,
).map(tuple)


@pytest.mark.parametrize("flow", [None, "slomax"])
@settings(max_examples=7, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    rule=st.sampled_from(["fleetmind", "skywalker", "shares_only"]),
    broken=failures,
    crashed=crashes,
    retries=st.integers(0, 3),
    cancel_share=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 1000),
)
def test_every_request_ends_once_and_none_in_a_forbidden_place(
    flow, rule, broken, crashed, retries, cancel_share, seed
):
    """F113 in whole runs: whatever breaks, no breach; offered = all the ends."""
    from router.slomax.registry import flow_factory

    draw = np.random.default_rng(seed)
    requests = [
        Request(
            number, 0.04 * number, int(draw.integers(20, 600)), int(draw.integers(1, 15)), 20,
            model=str(draw.choice(MODELS)), tenant=str(draw.choice([one.name for one in TENANTS])),
            workload_class="chat", origin=str(draw.choice(["A", "B", ""])), session_id=str(draw.integers(0, 9)),
        )
        for number in range(200)
    ]  # fmt: skip
    table = EndpointTable(SPECS)
    run = simulate(
        FLEET,
        SPECS,
        requests,
        make_policy("least_request", {}, table, seed),
        SimSettings(seed, retries=retries, cancel_share=cancel_share, failures=crashed, site_failures=broken),
        table=table,
        flow=None if flow is None else flow_factory(flow, {}),
        sites=site_rule_factory(rule, {}),
    )
    total = run.total
    assert run.residency_breaches == 0
    assert total.offered == 200
    assert total.offered == total.completed + total.failed + total.cancelled + total.rejected + total.running
    assert total.running == 0
    assert table.inflight.tolist() == [0.0] * 6
    assert sum(n for name, n in run.extra.items() if name.startswith("sent_to_")) == run.endpoint_requests.sum()


def test_a_breach_would_be_counted(monkeypatch):
    """The count of the laws above is not blind: with filters that forget permission it is above 0."""
    table = EndpointTable(SPECS)
    monkeypatch.setattr("router.core.eligible", lambda request, table, rules: np.flatnonzero(rules.serving("m@1")))
    requests = [
        Request(number, 0.1 * number, 400, 10, 20, model="m@1", tenant="west", workload_class="chat")
        for number in range(40)
    ]
    run = simulate(
        FLEET, SPECS, requests, make_policy("round_robin", {}, table, 1), SimSettings(), table=table,
        sites=site_rule_factory("gorgo", {}),
    )  # fmt: skip
    assert run.residency_breaches > 0
