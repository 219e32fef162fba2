"""What a running router knows, and how that changes: endpoints, fleet file, plan, model, readiness.

Every change is checked first and swapped in as a whole; requests under way on what stays are not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from data.outcome_sink import RecordSink
from data.plan import PlanDocument
from router.core import RouterCore
from router.endpoints import EndpointTable
from router.feeds.endpoint_state import EndpointStates, StateChange, StateSettings
from router.feeds.health import HealthBook
from router.feeds.stages import StageBook
from router.flow.flow_hooks import FlowHooks
from router.leases import LeaseBook
from router.prefix.index import PrefixIndex
from router.prompts.prefix_credit import PrefixCredit
from router.serving.capacity_source import CapacitySource
from router.serving.first_token_tellers import FirstTokenTellers
from router.serving.fleet_rows import FleetRows, LiveEndpoint, RowChanges
from router.serving.fleet_state import FleetState
from router.serving.guarded_predictor import GuardedPredictor
from router.serving.lease_reports import LeaseReports
from router.serving.live_listener import LiveListener
from router.serving.open_leases import OpenLeases
from router.serving.planned_drain import planned_drain
from router.sites.base import SiteContext
from router.sites.registry import MakeSiteRule
from router.sites.stage import SiteStage
from router.types import Policy
from router.version_choice import VersionChoice

PolicyFactory = Callable[[EndpointTable], Policy]


@dataclass(slots=True)
class Serving:
    """What serves now, for replies and watchers.

    Attributes:
        revision: Counts up with each change.
        cause: What changed last: ``plan``, ``model``, ``endpoints`` or ``fleet``; ``snapshot`` at first.
    """

    plan_id: str = ""
    model_version: str = ""
    revision: int = 1
    cause: str = "snapshot"
    on_change: list[Callable[[], None]] = field(default_factory=list)

    def changed(self, cause: str) -> None:
        """A change happened: count it and tell who waits."""
        self.revision += 1
        self.cause = cause
        for tell in self.on_change:
            tell()


@dataclass(frozen=True, slots=True)
class LiveParts:
    """What a running router is put together from; see ``router.serving.live_build``.

    Attributes:
        state: What follows from the fleet file.
        table: The endpoints.
        index: Who holds which prefix.
        make_policy: Builds the policy on a table; called again when the table grows.
        guard: The predictor that the policy asks, if it asks any.
        health: Breakers of the same table.
        state_settings: When load reports are no longer believed.
        on_state: Told of changes of the reports that deserve an alert.
        lease_base: See ``OpenLeases``.
        clock: Seconds since the epoch.
        sink: The decision and outcome log; ``None`` = none.
        listener: Told of everything.
        seed: Of the jitter of retry hints.
        make_site_rule: Makes the rule of site choice; ``None`` = the policy is shown all sites at once.
        tellers: Callers that tell of first tokens.
    """

    state: FleetState
    table: EndpointTable
    index: PrefixIndex
    make_policy: PolicyFactory
    guard: GuardedPredictor
    health: HealthBook
    state_settings: StateSettings
    on_state: Callable[[StateChange], None]
    lease_base: int
    clock: Callable[[], float]
    sink: RecordSink | None
    listener: LiveListener
    seed: int = 0
    make_site_rule: MakeSiteRule | None = None
    tellers: FirstTokenTellers = field(default_factory=FirstTokenTellers)


class LiveState:
    """Everything that decisions stand on. All calls come from one thread.

    Attributes:
        serving: Versions that serve now.
        draining: New requests are refused.
        on_restart: Told of a row whose engine has restarted.
        desk: Flow control in front of the router; ``None`` = every request is decided on at once.
        sites: Choice of the site, in force as soon as the fleet has several with GPUs; ``None`` = there is none.
        tellers: Callers that tell of first tokens.
        capacity: What the sites can do, for an entry router.
        stages: Where each endpoint stands in its life, and how long each stage took.
    """

    def __init__(self, parts: LiveParts) -> None:
        table, health = parts.table, parts.health
        self.state = parts.state
        self.index = parts.index
        self.clock = parts.clock
        self.guard = parts.guard
        self.health = health
        self.serving = Serving(model_version=parts.guard.version)
        self.draining = False
        self.on_restart: list[Callable[[int], None]] = []
        self.leases = OpenLeases(parts.lease_base)
        self.core = RouterCore(table, parts.index, parts.state.rules, parts.make_policy(table), LeaseBook(table))
        self.tellers = parts.tellers
        self.sites: SiteStage | None = None
        if parts.make_site_rule is not None:
            fleet = parts.state.fleet
            rule = parts.make_site_rule(SiteContext(fleet, parts.seed))
            self.sites = SiteStage(rule, fleet, table, parts.state.rules)
        self._use_sites()
        self.capacity = CapacitySource(
            table,
            self.clock,
            lambda: self.state,
            lambda: (self.serving.plan_id, self.draining),
            parts.lease_base,
        )
        self.rows = FleetRows(table, self.core.book, parts.index, self._forget)
        self.states = EndpointStates(
            table, self.core.book, health.sent, self.engine_restarted, parts.on_state, parts.state_settings
        )
        self.reports = LeaseReports(self.core, self.leases, parts.sink, parts.listener, parts.state.reader.lengths)
        self.credit = PrefixCredit(parts.index, lambda row: table.specs[row].endpoint_id)
        self.stages = StageBook(self.clock)
        self.desk: FlowHooks | None = None
        self._make_policy = parts.make_policy
        self._plan: PlanDocument | None = None
        self._seen_states = b""

    def metrics_state(self, row: int, now_s: float) -> str:
        """What is known of a row's load reports, see ``EndpointState.metrics``."""
        return self.states.state(row, now_s).value

    def safe(self) -> bool:
        """Whether a decision may be asked for: some endpoint takes requests and the router is not going down."""
        table = self.core.table
        return not self.draining and bool((table.ready & table.healthy & ~table.draining).any())

    def tick(self) -> None:
        """Upkeep, to be called a few times a second: end what expired, notice endpoints that changed."""
        self.reports.expire(self.clock())
        self.index.upkeep()
        if self.desk is not None:
            self.desk.tick()
        if self._states() != self._seen_states:
            self._announce("endpoints")

    def _announce(self, cause: str) -> None:
        self._seen_states = self._states()
        self.serving.changed(cause)

    def _states(self) -> bytes:
        """Readiness, health and draining of all rows, to be compared."""
        table = self.core.table
        return np.packbits(np.concatenate([table.ready, table.healthy, table.draining])).tobytes()

    def apply_endpoints(self, endpoints: Sequence[LiveEndpoint]) -> RowChanges:
        """Make these the endpoints; requests under way on those that stay are not touched.

        Raises:
            InputError: An id is empty or stands twice; then nothing has changed.
        """
        changes = self.rows.apply(endpoints)
        if changes.grown:
            self.health.resized()
            self.states.resized()
            self.core.policy = self._make_policy(self.core.table)
        for name in changes.removed:
            self.stages.left(name)
        for name in (*changes.added, *changes.restarted):
            self.stages.begin(name)
        if changes:
            self._apply_plan()
            self._note_stages()
            self._announce("endpoints")
        return changes

    def apply_fleet(self, state: FleetState, endpoints: Sequence[LiveEndpoint]) -> RowChanges:
        """Swap in another fleet file's state and its endpoints, both or none.

        Raises:
            InputError: The endpoints are wrong; then nothing has changed.
        """
        self.rows.check(endpoints)
        state.reader.versions = self.state.reader.versions
        self.state = state
        self.core.rules = state.rules
        if self.sites is not None:
            self.sites.fleet_changed(state.fleet, state.rules)
        self._use_sites()
        self.reports.lengths = state.reader.lengths
        changes = self.apply_endpoints(endpoints)
        if self.desk is not None:
            self.desk.fleet_changed()
        self.serving.changed("fleet")
        return changes

    def _use_sites(self) -> None:
        # Where there is no choice it would cost time for nothing. Once in force it stays: it has requests to end.
        if sum(site.role == "compute" for site in self.state.fleet.sites) > 1:
            self.core.sites = self.sites

    def apply_plan(self, plan: PlanDocument) -> None:
        """Follow a plan: its traffic shares, and its replicas.

        Endpoints beyond the planned replicas of their site and configuration drain.
        """
        self._plan = plan
        self.state.reader.versions = VersionChoice(plan.ramps)
        self.serving.plan_id = plan.plan_id
        self._apply_plan()
        if self.sites is not None:
            self.sites.plan_changed(plan.shares)
        if self.desk is not None:
            self.desk.plan_changed(plan)
        self._note_stages()
        self._announce("plan")

    def _apply_plan(self) -> None:
        if self._plan is not None:
            self.rows.drain(planned_drain(self._plan, self.rows.endpoints()))

    def model_changed(self) -> None:
        """Another latency model serves in the predictor's slot."""
        self.serving.model_version = self.guard.version
        self.serving.changed("model")

    def begin_drain(self) -> None:
        """Refuse new requests from now on; reports are taken until the end."""
        self.draining = True
        if self.desk is not None:
            self.desk.close()
        self.serving.changed("endpoints")

    def engine_restarted(self, row: int) -> None:
        """The engine behind a row is another process: forget its cache, its reports and what was in flight."""
        self.rows.restarted(row)
        name = self.core.table.specs[row].endpoint_id
        self.stages.begin(name)
        self._note_stage(name)
        for tell in self.on_restart:
            tell(row)

    def proven(self, endpoint_id: str) -> None:
        """A completion came from there: it takes requests from now on. Unknown ids are ignored."""
        row = self.rows.row(endpoint_id)
        if row is not None and not self.core.table.ready[row]:
            self.core.table.ready[row] = True
            self._note_stage(endpoint_id)
            self._announce("endpoints")

    def _note_stages(self) -> None:
        for endpoint in self.rows.endpoints():
            self._note_stage(endpoint.endpoint_id)

    def _note_stage(self, endpoint_id: str) -> None:
        table, row = self.core.table, self.rows.row(endpoint_id)
        if row is not None:
            self.stages.note(endpoint_id, bool(table.ready[row]), bool(table.draining[row]))

    def _forget(self, row: int) -> None:
        self.reports.endpoint_left(row, self.clock())
        self.core.policy.endpoint_reset(row)
        self.health.reset(row)
        self.states.reset(row)
        self.credit.forget(row)
        if self.desk is not None:
            self.desk.endpoint_reset(row)
