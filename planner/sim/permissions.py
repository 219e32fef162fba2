"""Where requests may run, worked out from the fleet file and not from the filters that are to be watched."""

from __future__ import annotations

from collections.abc import Sequence

from data.fleet.types import Fleet
from router.endpoints import EndpointSpec


class Permissions:
    """Permission and residency of every (tenant, model) at every endpoint.

    Args:
        fleet: Says who may use what, and where; without tenants everybody may.
        specs: The endpoints.
    """

    def __init__(self, fleet: Fleet, specs: Sequence[EndpointSpec]) -> None:
        self._fleet = fleet
        self._specs = specs
        self._tenants = {tenant.name: tenant for tenant in fleet.tenants}
        self._known: dict[tuple[str, str], list[bool]] = {}

    def may_run(self, tenant: str, model: str, endpoint: int) -> bool:
        """Whether this tenant's requests may run this model at that endpoint."""
        key = tenant, model
        rows = self._known.get(key)
        if rows is None:
            rows = self._known[key] = self._rows(tenant, model)
        return rows[endpoint]

    def _rows(self, tenant: str, model: str) -> list[bool]:
        if not self._tenants:
            return [True] * len(self._specs)
        sites = {site.name: site for site in self._fleet.sites}
        return [self._fleet.may_use(self._tenants[tenant], sites[spec.site], model) for spec in self._specs]
