"""What a fleet is made of: sites, GPUs, models, replica configurations, classes, tenants, current placement.

These are checked values. The loader (``data.fleet.load``) builds them from YAML and reports every fault with its
line; building them by hand in code runs the same structural checks (``data.fleet.check``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from data.types import Slo


class Named(Protocol):
    """Anything with a name of its own."""

    @property
    def name(self) -> str:
        """Unique in its list."""
        ...


NamedT = TypeVar("NamedT", bound=Named)

EngineKind = Literal["vllm", "sglang", "trtllm", "trtllm-json", "triton"]
BlockHashes = Literal["tokens", "engine"]
Tier = Literal["guaranteed", "standard", "best_effort"]
NO_TARGETS = Slo()
TIERS: tuple[Tier, ...] = ("guaranteed", "standard", "best_effort")


@dataclass(frozen=True, slots=True)
class Site:
    """A place with GPUs (``compute``) or only the business entry (``entry``)."""

    name: str
    role: Literal["entry", "compute"]
    zone: str
    power_kw: float | None = None
    """Power for GPUs, at most; ``None`` = not limited."""
    ingress_tokens_per_s: float | None = None
    """Output tokens/s of requests that may enter here from other sites; ``None`` = not limited."""
    host_memory_gb: float | None = None
    """Host memory for the weights of prewarmed copies; ``None`` = not limited."""
    start_budget_gpus: int | None = None
    """GPUs whose replicas may start in one planning period; ``None`` = not limited."""


@dataclass(frozen=True, slots=True)
class Link:
    """A network path between two sites, the same both ways."""

    a: str
    b: str
    rtt_s: float
    bandwidth_gbps: float
    price_per_gb: float = 0.0


@dataclass(frozen=True, slots=True)
class GpuPool:
    """GPUs of one type at one site. ``reserved_gpus`` of them are kept out of the planner's reach."""

    site: str
    gpu_type: str
    count: int
    reserved_gpus: int = 0


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings of the inference engine that change its timing or memory (names follow vLLM)."""

    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 256
    block_tokens: int = 16
    gpu_memory_utilization: float = 0.90
    prefix_caching: bool = True
    block_hashes: BlockHashes = "tokens"
    """What callers' block hashes are: their own (``tokens``), or the engine's (``engine``)."""


@dataclass(frozen=True, slots=True)
class Model:
    """One version of one model. Two versions are two models that share ``name``."""

    name: str
    version: str
    catalog: str
    """Key of the catalog entry with its service times and memory."""
    context_limit_tokens: int
    engine: EngineSettings = EngineSettings()
    token_value: float | None = None
    """Worth of one output token relative to other models; ``None`` = the planner's normalisation."""

    @property
    def key(self) -> str:
        """``name@version``: the name that requests, plans and metrics use."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, slots=True)
class ReplicaConfig:
    """One way to run a model: GPU type and tensor-parallel degree."""

    name: str
    model: str
    """Key of the model, ``name@version``."""
    gpu_type: str
    tensor_parallel: int
    load_ceiling: float = 0.85
    """Share of the SLO-feasible rate that may be planned, in (0, 1]."""


@dataclass(frozen=True, slots=True)
class ClassMatch:
    """Which requests belong to a class when nobody says so; see ``router.slomax.classify``."""

    min_input_tokens: int = 1
    """Shortest prompt."""
    max_input_tokens: int | None = None
    """Longest prompt; ``None`` = not limited."""
    max_output_budget: int | None = None
    """Largest output budget; ``None`` = not limited."""
    task_types: tuple[str, ...] = ()
    """Task types of its requests; a class that names any takes no request of another or unknown type."""


@dataclass(frozen=True, slots=True)
class WorkloadClass:
    """Requests with the same targets. ``weight`` scales the worth of its tokens against other classes."""

    name: str
    slo: Slo
    weight: float = 1.0
    expected_input_tokens: int = 1000
    expected_output_tokens: int = 200
    client_timeout_s: float | None = None
    match: ClassMatch = ClassMatch()
    queue_ttl_s: float | None = None
    """A request waits in the router's queue this long at most; ``None`` = only the fleet-wide bound holds."""
    when_late: Literal["serve", "refuse"] = "serve"
    """What becomes of a request that can no longer meet its targets: served late, or refused early."""
    floor_share: float | None = None
    """Share of a pool's work that the class gets at least while it waits; ``None`` = the router's setting."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A promise to a tenant: replicas of a model, or output tokens/s of a class on a model."""

    model: str
    replicas: int = 0
    tokens_per_s: float = 0.0
    workload_class: str | None = None
    sites: tuple[str, ...] = ()
    """Sites where it must stand; empty = any permitted one."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who sends requests, what it may use and what it was promised.

    An empty ``residency_zones``, ``models`` or ``sites`` means "no limit", never "nothing".
    """

    name: str
    tier: Tier = "standard"
    weight: float = 1.0
    residency_zones: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    tokens_per_s_budget: float | None = None
    requests_per_s_budget: float | None = None
    concurrent_budget: int | None = None
    """Requests in flight or waiting at a time; ``None`` = not limited."""
    may_hint_class: bool = False
    """Whether a class named by the caller is taken as it is."""
    targets: Slo = NO_TARGETS
    """Targets that the tenant asks for: where several classes would do, one that promises them is taken."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Replicas and prewarmed copies of one configuration that stand at one site."""

    site: str
    config: str
    replicas: int
    prewarmed: int = 0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One running engine and where it is reached."""

    id: str
    """Unique among endpoints."""
    site: str
    config: str
    """Name of its replica configuration."""
    address: str
    """``http://host:port`` of its API."""
    engine: EngineKind = "vllm"
    metrics_address: str | None = None
    """``http://host:port`` of its metrics; ``None`` = ``address``."""
    metrics_path: str | None = None
    """Path of its metrics page; ``None`` = the engine's usual one."""
    kv_events: str | None = None
    """ZeroMQ address where it publishes KV events; ``None`` = none, the router guesses what it caches."""
    kv_replay: str | None = None
    """ZeroMQ address where missed KV events can be asked for; ``None`` = none."""
    served_model: str | None = None
    """Name under which its API serves the model, for probes; ``None`` = the model's key ``name@version``."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Everything a planning step or a run needs to know about the fleet. All names are unique in their list."""

    name: str
    sites: tuple[Site, ...]
    links: tuple[Link, ...]
    pools: tuple[GpuPool, ...]
    models: tuple[Model, ...]
    configs: tuple[ReplicaConfig, ...]
    classes: tuple[WorkloadClass, ...]
    tenants: tuple[Tenant, ...]
    placement: tuple[Placed, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    """Engines that the router sends requests to."""

    def site(self, name: str) -> Site:
        """The site of that name; ``KeyError`` if there is none."""
        return next_named(self.sites, name)

    def config(self, name: str) -> ReplicaConfig:
        """The replica configuration of that name; ``KeyError`` if there is none."""
        return next_named(self.configs, name)

    def workload_class(self, name: str) -> WorkloadClass:
        """The workload class of that name; ``KeyError`` if there is none."""
        return next_named(self.classes, name)

    def tenant(self, name: str) -> Tenant:
        """The tenant of that name; ``KeyError`` if there is none."""
        return next_named(self.tenants, name)

    def model(self, key: str) -> Model:
        """The model with key ``name@version``; ``KeyError`` if there is none."""
        for model in self.models:
            if model.key == key:
                return model
        raise KeyError(key)

    def link(self, a: str, b: str) -> Link | None:
        """The path between two sites: a zero-cost one within a site, ``None`` if they are not connected."""
        if a == b:
            return Link(a, b, rtt_s=0.0, bandwidth_gbps=float("inf"))
        for link in self.links:
            if {link.a, link.b} == {a, b}:
                return link
        return None

    def may_use(self, tenant: Tenant, site: Site, model_key: str) -> bool:
        """Hard rule of permission and residency: may this tenant's requests run this model at this site?"""
        if tenant.sites and site.name not in tenant.sites:
            return False
        if tenant.residency_zones and site.zone not in tenant.residency_zones:
            return False
        return not tenant.models or model_key in tenant.models


def next_named(items: tuple[NamedT, ...], name: str) -> NamedT:
    """The item called ``name``; ``KeyError`` if there is none."""
    for item in items:
        if item.name == name:
            return item
    raise KeyError(name)
