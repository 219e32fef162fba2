"""Hard filters: which endpoints may serve a request at all, and why none may.

The order is fixed: model, life cycle, health, permission and residency, links, context limit, KV room, load
ceiling. First tries, retries and fallbacks pass the same function.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from data.errors import SettingError
from data.fleet.types import Fleet
from data.types import IntArray, RefusalReason
from router.compiled import compiled
from router.endpoints import EndpointTable
from router.types import BoolArray, RouteRequest


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """Settings of the hard filters.

    Attributes:
        load_ceiling: An endpoint with this many requests of ours in flight, as a share of its ``max_seqs``,
            takes no more (above 0); ``None`` = no ceiling.
    """

    load_ceiling: float | None = None

    def __post_init__(self) -> None:
        if self.load_ceiling is not None and not self.load_ceiling > 0:
            raise SettingError(
                "setting out of range",
                field="load_ceiling",
                value=self.load_ceiling,
                expected="above 0, or none",
            )


@dataclass(frozen=True, slots=True)
class Permitted:
    """What never changes for one (tenant, model): its rows and the least limits among them."""

    mask: BoolArray
    count: int
    least_context_tokens: float
    least_kv_tokens: float


class FilterRules:
    """The static part of the filters for one fleet and one table, computed once for each (tenant, model).

    Args:
        fleet: Says who may use what, and where. A fleet without tenants permits everybody everything.
        table: When its version changes, what was computed from its identity columns is computed again.
        settings: Settings of the filters.
    """

    def __init__(self, fleet: Fleet, table: EndpointTable, settings: FilterSettings | None = None) -> None:
        self.settings = settings or FilterSettings()
        self._fleet = fleet
        self._table = table
        self._tenants = {tenant.name: tenant for tenant in fleet.tenants}
        self._sites = {site.name: site for site in fleet.sites}
        self._models = {model.key for model in fleet.models}
        self._permitted: dict[tuple[str, str], Permitted] = {}
        self._version = table.version
        self._cut: dict[str, frozenset[str]] = {}
        self._linked: dict[str, BoolArray] = {}
        nothing = np.zeros(0, dtype=bool)
        _taking(nothing, nothing, nothing, nothing)  # compiles, which the first decision should not wait for

    def known_tenant(self, tenant: str) -> bool:
        """Whether the fleet file names this tenant, or names none at all."""
        return not self._tenants or tenant in self._tenants

    def known_model(self, model: str) -> bool:
        """Whether the fleet file names this model version."""
        return model in self._models

    def permitted(self, tenant: str, model: str) -> Permitted:
        """Endpoints of this model at sites that this tenant's permission and residency allow."""
        self._renew()
        found = self._permitted.get((tenant, model))
        if found is None:
            found = self._compute(tenant, model)
            if self.known_tenant(tenant) and self.known_model(model):
                # Names that callers make up are not remembered: the cache is bounded by the fleet file.
                self._permitted[tenant, model] = found
        return found

    def set_link(self, origin: str, site: str, up: bool) -> None:
        """Say that the way from ``origin`` to ``site`` is cut, or that it is there again.

        For those who know: an operator, a closed connection. What only experience tells is for a site rule.
        """
        cut = self._cut.get(origin, frozenset())
        cut = cut - {site} if up else cut | {site}
        if cut:
            self._cut[origin] = cut
        else:
            self._cut.pop(origin, None)
        self._linked.clear()

    def linked(self, origin: str) -> BoolArray | None:
        """Endpoints at sites that no cut separates from ``origin``; ``None`` = all, as nearly always."""
        cut = self._cut.get(origin)
        if cut is None:
            return None
        self._renew()
        found = self._linked.get(origin)
        if found is None:
            found = np.array([spec.site not in cut for spec in self._table.specs], dtype=bool)
            self._linked[origin] = found
        return found

    def _renew(self) -> None:
        """Forget what was computed from the identity columns of a table that has changed."""
        if self._version != self._table.version:
            self._permitted.clear()
            self._linked.clear()
            self._version = self._table.version

    def serving(self, model: str) -> BoolArray:
        """Endpoints of this model, whoever asks."""
        return np.asarray(self._table.models == model, dtype=bool)

    def _compute(self, tenant: str, model: str) -> Permitted:
        table = self._table
        mask = self.serving(model)
        if not self.known_tenant(tenant) or not self.known_model(model):
            mask = np.zeros(len(table), dtype=bool)
        elif self._tenants:
            allowed = {
                name: self._fleet.may_use(self._tenants[tenant], site, model) for name, site in self._sites.items()
            }
            mask = mask & np.array([allowed.get(spec.site, False) for spec in table.specs], dtype=bool)
        return Permitted(
            mask,
            int(mask.sum()),
            float(table.context_limit_tokens[mask].min(initial=np.inf)),
            float(table.kv_capacity_tokens[mask].min(initial=np.inf)),
        )


def eligible(request: RouteRequest, table: EndpointTable, rules: FilterRules) -> IntArray:
    """Row numbers, ascending, of the endpoints that may serve the request; empty if none may."""
    fixed, linked = rules.permitted(request.tenant, request.model), rules.linked(request.origin)
    if linked is None and _all_fit(request, fixed) and rules.settings.load_ceiling is None:
        return _taking(fixed.mask, table.ready, table.healthy, table.draining)
    mask = fixed.mask & table.ready & table.healthy & ~table.draining
    if linked is not None:
        mask &= linked
    if request.input_tokens + request.output_budget > fixed.least_context_tokens:
        mask &= _fits_context(request, table)
    if request.input_tokens > fixed.least_kv_tokens:
        mask &= _fits_kv(request, table)
    if rules.settings.load_ceiling is not None:
        mask &= _below_ceiling(table, rules.settings.load_ceiling)
    return np.flatnonzero(mask)


def _all_fit(request: RouteRequest, fixed: Permitted) -> bool:
    """Whether the request is within the limits of every permitted endpoint, as nearly all are."""
    tokens = request.input_tokens
    return tokens <= fixed.least_kv_tokens and tokens + request.output_budget <= fixed.least_context_tokens


@compiled
def _taking(permitted: BoolArray, ready: BoolArray, healthy: BoolArray, draining: BoolArray) -> IntArray:
    """Rows of permitted endpoints that take new requests, ascending."""
    return np.flatnonzero(permitted & ready & healthy & ~draining)


def refusal_reason(request: RouteRequest, table: EndpointTable, rules: FilterRules) -> RefusalReason | None:
    """The first filter that leaves no endpoint; ``None`` if some endpoint is eligible.

    An unknown tenant or model is told first. ``NO_PERMITTED_SITE`` means that endpoints are up, but none where
    this tenant may go.
    """
    if not rules.known_tenant(request.tenant):
        return RefusalReason.UNKNOWN_TENANT
    if not rules.known_model(request.model):
        return RefusalReason.UNKNOWN_MODEL
    left = np.ones(len(table), dtype=bool)
    for mask, reason in _stages(request, table, rules):
        left &= mask
        if not left.any():
            return reason
    return None


def _stages(
    request: RouteRequest, table: EndpointTable, rules: FilterRules
) -> Iterator[tuple[BoolArray, RefusalReason]]:
    yield rules.serving(request.model), RefusalReason.NO_ENDPOINT
    yield table.ready & ~table.draining, RefusalReason.NO_ENDPOINT
    yield table.healthy, RefusalReason.ALL_UNHEALTHY
    yield rules.permitted(request.tenant, request.model).mask, RefusalReason.NO_PERMITTED_SITE
    linked = rules.linked(request.origin)
    if linked is not None:
        yield linked, RefusalReason.NO_ENDPOINT
    yield _fits_context(request, table), RefusalReason.CONTEXT_TOO_LONG
    yield _fits_kv(request, table), RefusalReason.CONTEXT_TOO_LONG
    if rules.settings.load_ceiling is not None:
        yield _below_ceiling(table, rules.settings.load_ceiling), RefusalReason.OVERLOADED


def _fits_context(request: RouteRequest, table: EndpointTable) -> BoolArray:
    return np.asarray(request.input_tokens + request.output_budget <= table.context_limit_tokens)


def _fits_kv(request: RouteRequest, table: EndpointTable) -> BoolArray:
    return np.asarray(request.input_tokens <= table.kv_capacity_tokens)


def _below_ceiling(table: EndpointTable, ceiling: float) -> BoolArray:
    return np.asarray(table.inflight < ceiling * table.max_seqs)
