"""One simulated run: a fleet, a trace, a policy and a seed in; totals, distributions and a timeline out."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from data.errors import SettingError
from data.fleet.types import Fleet
from data.outcome_sink import RecordSink
from data.plan import PlanDocument, TrafficShare
from data.types import FloatArray, Request
from models.output_length import OutputLengthPredictor
from planner.sim.accounts import Accounts
from planner.sim.arrivals import Arrivals
from planner.sim.changes import Drain, PlanSwitch, Start
from planner.sim.clients import Clients
from planner.sim.engines import Engines
from planner.sim.events import EventQueue
from planner.sim.gpu_ledger import PoolKey
from planner.sim.lifecycle import Lifecycle
from planner.sim.links import Links
from planner.sim.meter import Meter
from planner.sim.network import Network
from planner.sim.result import RunResult
from planner.sim.router_side import RouterSide, SiteRuleFactory
from planner.sim.settings import SimSettings, endpoint_failures
from planner.sim.simulation import Simulation
from planner.sim.timeline import TimelineMeter
from planner.sim.waiting_room import FlowFactory, WaitingRoom
from router.endpoints import EndpointSpec, EndpointTable
from router.types import Policy

Progress = Callable[[float], None]
"""Told the simulated clock at each point of the timeline."""
OnPlan = Callable[[PlanDocument, float], None]
"""Told of each plan that takes force, and when."""


def simulate(
    fleet: Fleet,
    specs: Sequence[EndpointSpec],
    requests: Iterable[Request],
    policy: Policy,
    settings: SimSettings,
    *,
    table: EndpointTable,
    sink: RecordSink | None = None,
    progress: Progress | None = None,
    starts: Sequence[Start] = (),
    drains: Sequence[Drain] = (),
    flow: FlowFactory | None = None,
    lengths: OutputLengthPredictor | None = None,
    sites: SiteRuleFactory | None = None,
    shares: Sequence[TrafficShare] = (),
    switches: Sequence[PlanSwitch] = (),
    on_plan: OnPlan | None = None,
    gpus: Mapping[PoolKey, int] | None = None,
) -> RunResult:
    """Run a trace through a fleet.

    The same arguments give the same result, but for ``wall_s``. Memory does not grow with the trace: ``requests``
    may be a generator.

    Args:
        fleet: Classes, tenants, models, sites and links.
        specs: The endpoints, those that only start later included.
        requests: The trace, sorted by arrival; see ``Arrivals`` for closed-loop turns.
        policy: Built on ``table``; new for each run, as it keeps state.
        settings: What is late, what breaks, what clients do; the seed.
        table: ``EndpointTable(specs)``, not used before.
        sink: Takes decision and outcome rows.
        progress: Told the simulated clock now and then.
        starts: Replicas that start during the run.
        drains: Replicas that drain during the run.
        flow: Makes the flow control that holds requests back; ``None`` = each is sent on arrival.
        lengths: Predicts output lengths for the router and learns them; ``None`` = the means of the classes.
        sites: Makes the rule that chooses the site first; ``None`` = the policy sees all sites at once.
        shares: Traffic shares of the plan that the rule follows.
        switches: Plans that take force during the run; the rule of site choice follows their shares.
        on_plan: Told of each of them.
        gpus: GPUs of each (site, GPU type); a start waits until enough are free. ``None`` = no limit.

    Raises:
        SettingError: A setting, a failure or a change does not fit the endpoints.
        TraceError: The trace is not sorted, repeats an id, changes its block size, or names an unknown site.
    """
    began = time.perf_counter()
    if len(table) != len(specs) or not specs:
        raise SettingError(
            "table and endpoints differ", field="specs", value=len(specs), expected=f"{len(table)}, above 0"
        )
    run = Run(fleet, specs, requests, policy, settings, table, sink, flow, lengths, sites, shares, gpus)
    run.begin(starts, drains)
    run.follow(switches, on_plan)
    with fewer_collections():
        run.loop(progress)
    return run.result(time.perf_counter() - began)


@contextmanager
def fewer_collections() -> Iterator[None]:
    """Let the garbage collector look less often: a run makes many objects that die young and hardly a cycle.

    At its usual pace it takes a tenth of the time of a large run. Cycles that a policy makes are still found.
    """
    before = gc.get_threshold()
    if before[0] > 0:
        gc.set_threshold(max(before[0], 50_000), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


class Run:
    """The parts of one run, put together, and its main loop."""

    def __init__(
        self,
        fleet: Fleet,
        specs: Sequence[EndpointSpec],
        requests: Iterable[Request],
        policy: Policy,
        settings: SimSettings,
        table: EndpointTable,
        sink: RecordSink | None,
        flow: FlowFactory | None = None,
        lengths: OutputLengthPredictor | None = None,
        sites: SiteRuleFactory | None = None,
        shares: Sequence[TrafficShare] = (),
        gpus: Mapping[PoolKey, int] | None = None,
    ) -> None:
        self.settings = settings
        self.fleet = fleet
        self.events = EventQueue()
        self.arrivals = Arrivals(requests)
        self.start_s = self.arrivals.next_s if math.isfinite(self.arrivals.next_s) else 0.0
        self.end_s = self.start_s
        self.meter = Meter()
        self.sites = tuple(dict.fromkeys(spec.site for spec in specs))
        self._site_of = np.array([self.sites.index(spec.site) for spec in specs])
        self.timeline = TimelineMeter(self.start_s, settings.timeline_s, self.sites)
        self.engines = Engines(fleet, specs, settings, self.events)
        self.lifecycle = Lifecycle(self.engines, specs, self.events, table.draining, gpus)
        truth = self.engines.truth
        self.router = RouterSide(fleet, specs, policy, settings, table, truth, lengths, sites, shares)
        accounts = Accounts(self.meter, self.timeline, sink)
        network, clients = Network(fleet, specs), Clients(settings)
        self.links = Links(fleet, [spec.site for spec in specs], self.events)
        # The router stands at the entry: what it is told comes over the entry's own links.
        self.links.on_changed = lambda now_s: self.router.observer.silence(
            self.links.silent(network.default_origin), now_s
        )
        self.room: WaitingRoom | None = None
        if flow is not None:
            self.room = WaitingRoom(flow, fleet, self.router, network, self.events, settings.seed, self.start_s)
        self.simulation = Simulation(
            fleet,
            self.arrivals,
            self.engines,
            self.lifecycle,
            self.router,
            network,
            clients,
            self.events,
            accounts,
            self.links,
            self.room,
        )

    def begin(self, starts: Sequence[Start], drains: Sequence[Drain]) -> None:
        """Put planned changes and failures into the queue, and show the router what stands at the start."""
        settings = self.settings
        of_sites = endpoint_failures(settings.site_failures, self.links.sites)
        self.lifecycle.begin(self.start_s, starts, drains, settings.failures + of_sites)
        self.links.begin(self.start_s, settings.site_failures)
        self.router.table.ready[:] = self.engines.truth.ready
        self.router.observer.begin(self.start_s)

    def follow(self, switches: Sequence[PlanSwitch], on_plan: OnPlan | None = None) -> None:
        """Let each plan take force at its moment: one event a plan, no work for a request."""

        def switch(now_s: float, plan: PlanDocument) -> None:
            if self.router.sites is not None:
                self.router.sites.plan_changed(plan.shares)
            if on_plan is not None:
                on_plan(plan, now_s)

        for one in switches:
            self.events.push(max(one.at_s, self.start_s), switch, one.plan)

    def loop(self, progress: Progress | None) -> None:
        """Run until nothing is left to do, or to the time limit."""
        arrivals, events, simulation = self.arrivals, self.events, self.simulation
        observer, timeline = self.router.observer, self.timeline
        limit_s = math.inf if self.settings.time_limit_s is None else self.settings.time_limit_s
        while True:
            arrival_s, event_s = arrivals.next_s, events.next_s
            now_s = min(arrival_s, event_s)
            if now_s == math.inf or (arrival_s == math.inf and not simulation.open_requests):
                # All have ended, or nothing will ever happen to those that have not.
                if not simulation.open_requests or limit_s == math.inf:
                    limit_s = max(simulation.last_change_s, self.start_s)
                break
            if now_s > limit_s:
                break
            while observer.next_s <= now_s:
                observer.sample()
            if timeline.next_s <= now_s:
                self._timeline_until(now_s)
                if progress is not None:
                    progress(now_s)
            if arrival_s <= event_s:
                simulation.offer(*arrivals.pop())
            else:
                events.run_next()
        self.end_s = max(limit_s, self.start_s)
        self._timeline_until(self.end_s)

    def result(self, wall_s: float) -> RunResult:
        """The figures of the run so far."""
        duration_s = self.end_s - self.start_s
        meter, arrivals = self.meter, self.arrivals
        return RunResult(
            policy=self.router.policy.name,
            seed=self.settings.seed,
            fleet=self.fleet.name,
            duration_s=duration_s,
            total=meter.total.result(duration_s),
            by_class={name: group.result(duration_s) for name, group in sorted(meter.by_class.items())},
            by_tenant={name: group.result(duration_s) for name, group in sorted(meter.by_tenant.items())},
            gpu_hours=self.lifecycle.gpu_hours(self.end_s),
            preemptions=self.engines.preemptions(),
            residency_breaches=meter.residency_breaches,
            timeline=self.timeline.result(),
            ttft_histogram=meter.total.ttft.edges_and_counts(),
            endpoint_requests=np.array(self.simulation.endpoint_requests, dtype=np.float64),
            wall_s=wall_s,
            extra={
                **{f"wasted_tokens_{cause}": float(n) for cause, n in meter.total.waste.by_cause().items()},
                "late_turns": float(arrivals.late_turns),
                "orphan_turns": float(arrivals.orphan_turns),
                "turns_after_failure": float(arrivals.turns_after_failure),
                **self.router.site_figures(),
            },
            by_tier={name: group.result(duration_s) for name, group in sorted(meter.by_tier.items())},
        )

    def _timeline_until(self, now_s: float) -> None:
        """Nothing has happened since the last event, so that all points up to ``now_s`` can be taken now."""
        truth, timeline = self.engines.truth, self.timeline
        capacity = self._by_site(truth.capacity)
        while timeline.next_s <= now_s:
            used = self._by_site(truth.kv_use(timeline.next_s) * truth.capacity)
            timeline.sample(self._by_site(truth.waiting), self._by_site(truth.running), used / capacity)

    def _by_site(self, values: FloatArray) -> FloatArray:
        return np.bincount(self._site_of, weights=values, minlength=len(self.sites)).astype(np.float64)
