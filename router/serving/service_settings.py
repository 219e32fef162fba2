"""Everything that a router process is started with: files, addresses and knobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from data.errors import DocumentError, InputError, SettingError
from data.log.settings import LogSettings
from data.strict.decode import Decoder
from data.strict.faults import Fault, to_errors
from data.strict.rules import RuleBook
from data.strict.yaml_tree import read_yaml
from router.feeds.breaker import HealthSettings
from router.feeds.endpoint_state import StateSettings
from router.feeds.index_snapshots import SnapshotSettings
from router.feeds.probe_settings import ProbeSettings
from router.feeds.scrape import ScrapeSettings
from router.filters import FilterSettings
from router.policies.settings import Checked, Setting, above, whole
from router.prefix.index import PrefixIndexSettings
from router.serving.fleet_state import FleetSettings
from router.serving.guarded_predictor import GuardSettings
from router.serving.lease_terms import LeaseSettings
from router.serving.server_settings import ListenSettings, ServerLimits
from router.serving.wire_request import WireLimits
from router.sites.registry import MakeSiteRule, site_rule_factory
from router.slomax.feedback_settings import FeedbackSettings
from router.slomax.registry import MakeFlow, flow_factory

BOOK = RuleBook(rules={}, annotations=True)
KnobsT = TypeVar("KnobsT")
NO_FLOW = "none"
"""In place of the name of a flow control: there is none."""
NO_SITES = "none"
"""In place of the name of a rule of site choice."""


@dataclass(frozen=True, slots=True)
class LogFiles(Checked):
    """How the decision and outcome log is written.

    Attributes:
        rotate_s: A file is written when its oldest row is this old, seconds.
        most_rows: Rows that may wait while the disk refuses, 50,000 or more; others are dropped and counted.
    """

    rotate_s: float = above(0.0, 60.0)
    most_rows: int = whole(50_000, 1_000_000)

    def writer(self) -> LogSettings:
        """For the log's writer, which never lets a request wait for the disk."""
        return LogSettings(rotate_age_s=self.rotate_s, max_buffered_rows=self.most_rows, background=True)


@dataclass(frozen=True, slots=True)
class Knobs:
    """The settings file, all keys optional.

    Attributes:
        origin: Site of requests that name none; empty = the fleet's first entry site.
        seed: Of the policy's draws and of the jitter of retry hints.
        span_share: Share of attempts that get an OpenTelemetry span, 0 to 1; 0 = none, the library is not loaded.
    """

    server: ServerLimits = field(default_factory=ServerLimits)
    limits: WireLimits = field(default_factory=WireLimits)
    leases: LeaseSettings = field(default_factory=LeaseSettings)
    filters: FilterSettings = field(default_factory=FilterSettings)
    predictor: GuardSettings = field(default_factory=GuardSettings)
    health: HealthSettings = field(default_factory=HealthSettings)
    scrape: ScrapeSettings = field(default_factory=ScrapeSettings)
    reports: StateSettings = field(default_factory=StateSettings)
    probe: ProbeSettings = field(default_factory=ProbeSettings)
    prefix_index: PrefixIndexSettings = field(default_factory=PrefixIndexSettings)
    index_snapshot: SnapshotSettings = field(default_factory=SnapshotSettings)
    feedback: FeedbackSettings = field(default_factory=FeedbackSettings)
    log: LogFiles = field(default_factory=LogFiles)
    origin: str = ""
    seed: int = 0
    span_share: float = 0.0

    def fleet(self) -> FleetSettings:
        """How a fleet file is read."""
        return FleetSettings(self.filters, self.leases, self.limits, self.origin)


@dataclass(frozen=True, slots=True)
class Given:
    """What was given and is no default, for ``router.observe.effective_settings``.

    Attributes:
        flags: Dotted names of fields of ``ServiceSettings`` that flags set.
        file: The settings file.
        file_keys: Its dotted keys, such as ``server.drain_s``.
    """

    flags: frozenset[str] = frozenset()
    file: Path | None = None
    file_keys: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """One router process.

    Attributes:
        fleet: Fleet file.
        endpoints: List of engines in place of the fleet file's; ``None`` = that one.
        plan: Plan to follow; ``None`` = all replicas serve.
        models: Model store; ``None`` = the closed-form prior predicts.
        clients: Who may call; ``None`` = anybody on this machine.
        log: Folder of the decision and outcome log; ``None`` = none.
        scope_secret: File with the secret that parts the prefixes of tenants; ``None`` = a random one.
        public_prefixes: Prompt beginnings that tenants share; ``None`` = none.
        index_snapshot: Where the prefix index is kept for the next process; ``None`` = nowhere.
        metrics_listen: ``HOST:PORT`` of the metrics page; empty = none.
        flow: Flow control in front of the router; ``none`` = every request is decided on at once.
        flow_settings: Settings of it that differ from its defaults.
        sites: Rule that chooses the site where the fleet has several; ``none`` = the policy is shown all at once.
        sites_settings: Settings of it that differ from its defaults.
        only_site: Serve the engines of this site alone, with an entry router in front; empty = all.
        probe: Whether a listed engine takes requests only once it has answered a completion of one token.
        feedback: Whether what became of the requests corrects the flow control; its settings are in ``knobs``.
        feedback_state: Where the feedback is kept for the next process, and for a planner; ``None`` = nowhere.
        follow_s: How often files are looked at.
    """

    fleet: Path
    endpoints: Path | None = None
    plan: Path | None = None
    models: Path | None = None
    clients: Path | None = None
    log: Path | None = None
    scope_secret: Path | None = None
    public_prefixes: Path | None = None
    index_snapshot: Path | None = None
    listen: ListenSettings = field(default_factory=ListenSettings)
    metrics_listen: str = ""
    policy: str = "tokenpilot"
    policy_settings: Mapping[str, Setting] = field(default_factory=dict)
    flow: str = "slomax"
    flow_settings: Mapping[str, Setting] = field(default_factory=dict)
    sites: str = "fleetmind"
    sites_settings: Mapping[str, Setting] = field(default_factory=dict)
    only_site: str = ""
    probe: bool = False
    feedback: bool = True
    feedback_state: Path | None = None
    knobs: Knobs = field(default_factory=Knobs)
    follow_s: float = 1.0
    given: Given = field(default_factory=Given)

    def make_flow(self) -> MakeFlow | None:
        """What makes the flow control; ``None`` = none.

        Raises:
            SettingError: Its name or a setting is wrong.
        """
        if self.feedback_state is not None and (self.flow == NO_FLOW or not self.feedback):
            raise SettingError("no feedback, so nothing to keep", field="feedback_state")
        if self.flow == NO_FLOW:
            if self.flow_settings:
                raise SettingError("no flow control, so nothing to set", field="flow_settings")
            return None
        return flow_factory(self.flow, self.flow_settings, self.knobs.feedback if self.feedback else None)

    def make_sites(self) -> MakeSiteRule | None:
        """What makes the rule of site choice; ``None`` = none.

        Raises:
            SettingError: Its name or a setting is wrong.
        """
        if self.sites == NO_SITES:
            if self.sites_settings:
                raise SettingError("no rule of site choice, so nothing to set", field="sites_settings")
            return None
        made = site_rule_factory(self.sites, self.sites_settings)
        return None if self.only_site else made


def read_knobs(path: Path) -> tuple[Knobs, frozenset[str]]:
    """Read a router's settings file; see :func:`read_settings`."""
    return read_settings(path, Knobs)


def read_settings(path: Path, kind: type[KnobsT]) -> tuple[KnobsT, frozenset[str]]:
    """Read a settings file: what counts now, and the dotted keys that it holds.

    Raises:
        DocumentError: It is wrong; ``problems`` holds every fault.
        InputError: It cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", source=str(path)) from error
    tree = read_yaml(text)
    faults = list(tree.faults)
    knobs: object = None
    if not faults:
        decoder = Decoder(BOOK, faults=faults)
        try:
            knobs = decoder.read(kind, {} if tree.value is None else tree.value)
        except SettingError as error:
            fault = Fault((error.field or "",), error.problem, value=error.value, expected=error.expected)
            faults.append(fault)
    if faults or not isinstance(knobs, kind):
        problems = to_errors(faults, DocumentError, str(path), tree.lines)
        problems[0].problems = tuple(problems)
        raise problems[0]
    return knobs, frozenset(_leaf_keys(tree.value, ""))


def _leaf_keys(tree: object, prefix: str) -> Iterator[str]:
    if not isinstance(tree, Mapping):
        yield prefix
        return
    for key, value in tree.items():
        yield from _leaf_keys(value, f"{prefix}.{key}" if prefix else str(key))
