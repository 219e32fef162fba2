"""Structural checks on a fleet whose names and ranges are already sound: does it fit together?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from data.catalog.load import Catalog
from data.catalog.memory import kv_tokens_at
from data.errors import InputError
from data.fleet.types import Fleet, ReplicaConfig, Reservation, Tenant
from data.strict.faults import Fault, Path

Check = Callable[[Fleet, Catalog], Iterator[Fault]]


def structure_faults(fleet: Fleet, catalog: Catalog) -> list[Fault]:
    """Every structural fault, in the order of the document's sections."""
    return [fault for check in CHECKS for fault in check(fleet, catalog)]


def check_sections(fleet: Fleet, catalog: Catalog) -> Iterator[Fault]:  # noqa: ARG001
    """A fleet without a site, model, configuration or class cannot serve anything."""
    sections = (("sites", fleet.sites), ("models", fleet.models), ("configs", fleet.configs))
    for key, entries in (*sections, ("classes", fleet.classes)):
        if not entries:
            yield Fault((key,), "empty section", expected="at least one entry")
    if not any(site.role == "compute" for site in fleet.sites):
        yield Fault(("sites",), "no site with GPUs", expected="at least one site with role: compute")


def check_links(fleet: Fleet, catalog: Catalog) -> Iterator[Fault]:  # noqa: ARG001
    """A link joins two different sites, and every entry site reaches some compute site."""
    for i, link in enumerate(fleet.links):
        if link.a == link.b:
            yield Fault(("links", i, "b"), "a link joins two different sites", value=link.b)
    compute = [site.name for site in fleet.sites if site.role == "compute"]
    for i, site in enumerate(fleet.sites):
        if site.role == "entry" and all(fleet.link(site.name, other) is None for other in compute):
            yield Fault(("sites", i), "entry site without a link to a compute site", value=site.name)


def check_pools(fleet: Fleet, catalog: Catalog) -> Iterator[Fault]:  # noqa: ARG001
    """GPUs stand at compute sites only; the reserved part is not more than the whole; power suffices."""
    for i, pool in enumerate(fleet.pools):
        if fleet.site(pool.site).role == "entry":
            expected = "a site with role: compute"
            yield Fault(("gpu_pools", i, "site"), "an entry site owns no GPUs", value=pool.site, expected=expected)
        if pool.count == 0:
            expected = "1 or more; leave the pool out if there are no GPUs"
            yield Fault(("gpu_pools", i, "count"), "pool without GPUs", value=0, expected=expected)
        if pool.reserved_gpus > pool.count:
            yield Fault(
                ("gpu_pools", i, "reserved_gpus"),
                "more GPUs reserved than there are",
                value=pool.reserved_gpus,
                expected=f"0 to {pool.count}",
            )


def check_classes(fleet: Fleet, catalog: Catalog) -> Iterator[Fault]:  # noqa: ARG001
    """A class without any target would count every answer as good."""
    for i, kind in enumerate(fleet.classes):
        if kind.slo.ttft_s is None and kind.slo.tpot_s is None and kind.slo.deadline_s is None:
            expected = "at least one of ttft_s, tpot_s, deadline_s"
            yield Fault(("classes", i, "slo"), "no target is set", expected=expected)
        ttft, deadline = kind.slo.ttft_s, kind.slo.deadline_s
        if ttft is not None and deadline is not None and deadline < ttft:
            expected = f"at least ttft_s ({ttft:g})"
            yield Fault(
                ("classes", i, "slo", "deadline_s"), "before the first token", value=deadline, expected=expected
            )


def check_configs(fleet: Fleet, catalog: Catalog) -> Iterator[Fault]:
    """The catalog knows each configuration, its weights fit, and one full context fits beside them."""
    for i, config in enumerate(fleet.configs):
        model = fleet.model(config.model)
        try:
            facts = catalog.facts(model.catalog, config.gpu_type, config.tensor_parallel)
        except InputError as error:
            yield Fault(("configs", i), error.problem, value=config.name, expected=error.expected)
            continue
        room = kv_tokens_at(facts, catalog.gpu(config.gpu_type), model.engine.gpu_memory_utilization)
        path: Path = ("configs", i)
        if room <= 0:
            gpus = f"{config.tensor_parallel} x {config.gpu_type}"
            problem = f"{facts.weights_gb:g} GB of weights leave no room for KV on {gpus}"
            yield Fault(path, problem, value=config.name, expected="more GPUs or a higher gpu_memory_utilization")
        elif room < model.context_limit_tokens:
            problem = f"holds {room} KV tokens, less than the model's context limit"
            expected = f"context_limit_tokens of {model.key} at most {room} (now {model.context_limit_tokens})"
            yield Fault(path, problem, value=config.name, expected=expected)


def check_placement(fleet: Fleet, catalog: Catalog) -> Iterator[Fault]:  # noqa: ARG001
    """GPUs in use = sum of replicas x GPUs per replica, at most the pool's count less its reserved GPUs.

    A compute site may hold replicas on GPUs that no pool states: their number is then unknown, never guessed, and
    the planner leaves them as they are (``unstated_gpus`` lists them).
    """
    used: dict[tuple[str, str], int] = defaultdict(int)
    free = {(pool.site, pool.gpu_type): pool.count - pool.reserved_gpus for pool in fleet.pools}
    for i, placed in enumerate(fleet.placement):
        config = fleet.config(placed.config)
        pool = (placed.site, config.gpu_type)
        if fleet.site(placed.site).role == "entry":
            expected = _homes(fleet, config)
            yield Fault(("placement", i, "site"), "an entry site holds no replicas", placed.site, expected)
        elif pool in free:
            used[pool] += placed.replicas * config.tensor_parallel
            if used[pool] > free[pool]:
                problem = f"{used[pool]} {config.gpu_type} used at {placed.site} by replicas up to here"
                expected = f"at most {free[pool]} GPUs (count less reserved_gpus)"
                yield Fault(("placement", i, "replicas"), problem, value=placed.replicas, expected=expected)


def unstated_gpus(fleet: Fleet) -> list[tuple[str, str]]:
    """(site, GPU type) pairs that hold replicas although no pool states how many such GPUs the site has."""
    stated = {(pool.site, pool.gpu_type) for pool in fleet.pools}
    held = {(placed.site, fleet.config(placed.config).gpu_type) for placed in fleet.placement}
    return sorted(held - stated)


def check_host_memory(fleet: Fleet, catalog: Catalog) -> Iterator[Fault]:
    """Prewarmed copies fit into the site's host memory, where that is limited."""
    used: dict[str, float] = defaultdict(float)
    for i, placed in enumerate(fleet.placement):
        limit = fleet.site(placed.site).host_memory_gb
        config = fleet.config(placed.config)
        if limit is None or not placed.prewarmed or not _known(fleet, catalog, config):
            continue
        model = fleet.model(config.model)
        facts = catalog.facts(model.catalog, config.gpu_type, config.tensor_parallel)
        used[placed.site] += placed.prewarmed * facts.weights_gb
        if used[placed.site] > limit:
            problem = f"prewarmed copies need {used[placed.site]:g} GB of host memory at {placed.site}"
            yield Fault(
                ("placement", i, "prewarmed"), problem, value=placed.prewarmed, expected=f"at most {limit:g} GB"
            )


def check_endpoints(fleet: Fleet, catalog: Catalog) -> Iterator[Fault]:  # noqa: ARG001
    """Engines stand at compute sites, each at an address of its own."""
    first: dict[str, str] = {}
    for i, endpoint in enumerate(fleet.endpoints):
        if fleet.site(endpoint.site).role == "entry":
            expected = "a site with role: compute"
            yield Fault(("endpoints", i, "site"), "an entry site holds no engines", endpoint.site, expected)
        if endpoint.address in first:
            problem = f"the address of endpoint {first[endpoint.address]} too"
            yield Fault(("endpoints", i, "address"), problem, endpoint.address, "one address for each engine")
        first.setdefault(endpoint.address, endpoint.id)
        if endpoint.kv_replay is not None and endpoint.kv_events is None:
            yield Fault(("endpoints", i, "kv_replay"), "replay without kv_events", endpoint.kv_replay)


def check_tenants(fleet: Fleet, catalog: Catalog) -> Iterator[Fault]:  # noqa: ARG001
    """Each tenant may use some compute site, and each promise can be kept somewhere it is allowed."""
    for i, tenant in enumerate(fleet.tenants):
        allowed = [
            site.name
            for site in fleet.sites
            if site.role == "compute"
            and (not tenant.sites or site.name in tenant.sites)
            and (not tenant.residency_zones or site.zone in tenant.residency_zones)
        ]
        if not allowed:
            problem = "no compute site passes both its sites and its residency_zones"
            yield Fault(("tenants", i), problem, value=tenant.name, expected="at least one such site")
            continue
        for j, promise in enumerate(tenant.reservations):
            path: Path = ("tenants", i, "reservations", j)
            yield from _promise_faults(fleet, tenant, promise, allowed, path)


def _promise_faults(
    fleet: Fleet, tenant: Tenant, promise: Reservation, allowed: list[str], path: Path
) -> Iterator[Fault]:
    if promise.replicas == 0 and promise.tokens_per_s == 0:
        yield Fault(path, "promises nothing", expected="replicas or tokens_per_s above 0")
    if tenant.models and promise.model not in tenant.models:
        expected = "one of the tenant's models: " + ", ".join(tenant.models)
        yield Fault((*path, "model"), "the tenant may not use this model", value=promise.model, expected=expected)
    for k, site in enumerate(promise.sites):
        if site not in allowed:
            expected = "one of the sites the tenant may use: " + ", ".join(allowed)
            yield Fault((*path, "sites", k), "the tenant may not use this site", value=site, expected=expected)
    homes = [site for site in (promise.sites or allowed) if site in allowed]
    if homes and not any(_can_run(fleet, promise.model, site) for site in homes):
        problem = f"no configuration of {promise.model} can stand at {', '.join(homes)}"
        yield Fault(path, problem, expected="a config whose GPU type is there")


def _can_run(fleet: Fleet, model: str, site: str) -> bool:
    """Whether one replica of the model fits the site's GPUs less the reserved ones."""
    room = {pool.gpu_type: pool.count - pool.reserved_gpus for pool in fleet.pools if pool.site == site}
    return any(c.model == model and c.tensor_parallel <= room.get(c.gpu_type, 0) for c in fleet.configs)


def _homes(fleet: Fleet, config: ReplicaConfig) -> str:
    sites = [pool.site for pool in fleet.pools if pool.gpu_type == config.gpu_type]
    return "one of " + ", ".join(sites) if sites else f"a gpu_pools entry of {config.gpu_type}"


def _known(fleet: Fleet, catalog: Catalog, config: ReplicaConfig) -> bool:
    try:
        catalog.facts(fleet.model(config.model).catalog, config.gpu_type, config.tensor_parallel)
    except InputError:
        return False
    return True


CHECKS: tuple[Check, ...] = (
    check_sections,
    check_links,
    check_pools,
    check_configs,
    check_classes,
    check_tenants,
    check_placement,
    check_endpoints,
    check_host_memory,
)
"""All structural checks, in the order of the document's sections."""
