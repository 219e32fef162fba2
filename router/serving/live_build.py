"""Puts a ``LiveRouter`` together from a fleet, its endpoints and what serves beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from data.fleet.types import Fleet
from data.outcome_sink import RecordSink
from models.base import LatencyPredictor
from models.features import NAMES
from models.physics import PriorPredictor
from router.endpoints import VACANT, EndpointTable
from router.feeds.breaker import HealthSettings
from router.feeds.endpoint_state import StateChange, StateSettings
from router.feeds.health import HealthBook
from router.flow.flow_desk import FlowDesk
from router.policies.settings import Setting
from router.prefix.index import PrefixIndex
from router.prompts.prompt import PromptHasher
from router.registry import make_policy, policy_entry
from router.serving.class_lengths import ClassLengths
from router.serving.clock import ServiceClock
from router.serving.first_token_tellers import FirstTokenTellers
from router.serving.fleet_rows import LiveEndpoint
from router.serving.fleet_state import FleetSettings, FleetState, build_fleet_state
from router.serving.guarded_predictor import GuardedPredictor, GuardSettings
from router.serving.health_link import HealthLink
from router.serving.live import LiveRouter
from router.serving.live_listener import Listeners, LiveListener
from router.serving.live_state import LiveParts
from router.sites.registry import MakeSiteRule
from router.slomax.registry import MakeFlow
from router.types import Policy


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """What is chosen for a router.

    Attributes:
        policy: Name in the registry.
        policy_settings: Settings of the policy that differ from its defaults.
        fleet: How the fleet file is read into rules.
        guard: Limits of the predictor.
        health: When endpoints are distrusted.
        states: When load reports are no longer believed.
        flow: Makes the flow control; ``None`` = every request is decided on at once.
        sites: Makes the rule of site choice; ``None`` = the policy is shown all sites at once.
        seed: Of policy and jitter.
        lease_base: Start of the lease numbers; another one for each process, see ``OpenLeases``.
    """

    policy: str = "tokenpilot"
    policy_settings: Mapping[str, Setting] = field(default_factory=dict)
    fleet: FleetSettings = field(default_factory=FleetSettings)
    guard: GuardSettings = field(default_factory=GuardSettings)
    health: HealthSettings = field(default_factory=HealthSettings)
    states: StateSettings = field(default_factory=StateSettings)
    flow: MakeFlow | None = None
    sites: MakeSiteRule | None = None
    seed: int = 0
    lease_base: int = 0


def build_live(
    fleet: Fleet,
    endpoints: Sequence[LiveEndpoint],
    settings: LiveSettings | None = None,
    *,
    digest: str = "",
    predictor: LatencyPredictor | None = None,
    hasher: PromptHasher | None = None,
    clock: Callable[[], float] | None = None,
    sink: RecordSink | None = None,
    listeners: Sequence[LiveListener] = (),
    index: PrefixIndex | None = None,
    on_state: Callable[[StateChange], None] = lambda _: None,
) -> LiveRouter:
    """A router over ``endpoints``.

    Args:
        fleet: Checked fleet.
        endpoints: Engine instances as they are known now.
        settings: What is chosen.
        digest: Of the fleet file.
        predictor: Latency model, or the slot that models are swapped in; ``None`` = the closed-form prior.
        hasher: Makes block hashes; ``None`` = the caller's are taken as they are.
        clock: Seconds since the epoch.
        sink: The decision and outcome log.
        listeners: Told of everything, beside health.
        index: Prefix index; ``None`` = an empty one.
        on_state: Told of changes of load reports that deserve an alert.

    Raises:
        SettingError: An unknown policy or setting, or a fleet without classes.
        InputError: The endpoints are wrong.
    """
    settings = settings or LiveSettings()
    policy_entry(settings.policy)
    table = EndpointTable([VACANT] * max(len(endpoints), 1))
    table.ready[:] = False
    if index is None:  # An empty one counts as false.
        index = PrefixIndex(len(table))
    index.ensure_rows(len(table))
    lengths = ClassLengths(fleet.classes)
    health = HealthBook(table, settings.health)
    guard = _guarded(predictor, settings.guard)
    state = build_fleet_state(fleet, digest, table, lengths, hasher, settings.fleet, settings.lease_base)

    def policy(rows: EndpointTable) -> Policy:
        return make_policy(settings.policy, settings.policy_settings, rows, settings.seed, guard)

    tellers = FirstTokenTellers()
    told = Listeners(HealthLink(health, tellers), *listeners)
    live = LiveRouter(
        LiveParts(
            state=state,
            table=table,
            index=index,
            make_policy=policy,
            guard=guard,
            health=health,
            state_settings=settings.states,
            on_state=on_state,
            lease_base=settings.lease_base,
            clock=clock or ServiceClock(),
            sink=sink,
            listener=told,
            seed=settings.seed,
            make_site_rule=settings.sites,
            tellers=tellers,
        )
    )
    live.apply_endpoints(endpoints)
    if settings.flow is not None:
        desk = FlowDesk(live, settings.flow, settings.seed)
        live.desk = desk
        told.add(desk.listener)
    return live


def _guarded(predictor: LatencyPredictor | None, settings: GuardSettings) -> GuardedPredictor:
    prior = PriorPredictor()
    prior.predict(np.ones((1, len(NAMES))))  # compiles, which the first decision should not wait for
    return GuardedPredictor(predictor or prior, prior, settings)


def next_fleet_state(live: LiveRouter, fleet: Fleet, digest: str, settings: FleetSettings) -> FleetState:
    """The state of another fleet file for a running router; see ``LiveRouter.apply_fleet``.

    Raises:
        SettingError: The fleet has no class.
    """
    reader = live.state.reader
    # The running means stay as they are until the new state is swapped in.
    lengths = reader.lengths.with_classes(fleet.classes)
    return build_fleet_state(fleet, digest, live.core.table, lengths, reader.hasher, settings, reader.next_number)
