"""What this router's sites can do, as the reports that an entry router is sent."""

from __future__ import annotations

import math
from collections.abc import Callable

import grpc
import numpy as np

from data.types import IntArray
from router.endpoints import EndpointTable
from router.pb.v1 import router_pb2 as pb
from router.serving.call_gate import CallRefusedError
from router.serving.capacity_wire import Limits, capacity_report
from router.serving.fleet_state import FleetState
from router.sites.summary import SiteSummary
from router.sites.types import ReadyCapacity

LEAST_PERIOD_S, USUAL_PERIOD_S, MOST_PERIOD_S = 0.05, 0.5, 60.0
SAME_S = 0.05
"""Reports to several entries within this time are one computation."""


class CapacitySource:
    """Sums up one table for everybody who asks.

    Args:
        table: The endpoints.
        clock: The router's clock.
        state: The fleet in force.
        serving: Plan and going down: ``(plan_id, draining)`` as of now.
        lease_base: Where this process's leases begin.
    """

    def __init__(
        self,
        table: EndpointTable,
        clock: Callable[[], float],
        state: Callable[[], FleetState],
        serving: Callable[[], tuple[str, bool]],
        lease_base: int,
    ) -> None:
        self._table = table
        self._clock = clock
        self._state = state
        self._serving = serving
        self._base = lease_base
        self._summary: SiteSummary | None = None
        self._sequence = 0
        self._made_s = -math.inf
        self._last = pb.CapacityReport()

    def report(self) -> pb.CapacityReport:
        """What every site can do for every model now."""
        now_s = self._clock()
        plan_id, draining = self._serving()
        if now_s - self._made_s > SAME_S or draining != self._last.draining:
            self._sequence += 1
            report = self._sum(now_s)
            report.sequence, report.lease_base, report.draining = self._sequence, self._base, draining
            report.plan_id, report.fleet_digest = plan_id, self._state().digest
            self._last, self._made_s = report, now_s
        return self._last

    def _sum(self, now_s: float) -> pb.CapacityReport:
        table, rules = self._table, self._state().rules
        if self._summary is None:
            self._summary = SiteSummary(table, rules.settings.load_ceiling)
        taking = table.ready & table.healthy & ~table.draining
        found: list[ReadyCapacity] = []
        limits: dict[tuple[str, str], Limits] = {}
        for model in self._state().fleet.models:
            rows: IntArray = np.flatnonzero(rules.serving(model.key) & taking)
            if not len(rows):
                continue
            found += self._summary.capacities(model.key, rows, now_s)
            for site in {table.specs[row].site for row in rows.tolist()}:
                at_site = self._summary.rows_at(site, rows)
                limits[site, model.key] = Limits(
                    float(table.context_limit_tokens[at_site].max()),
                    float(table.kv_capacity_tokens[at_site].max()),
                )
        return capacity_report(found, limits, now_s)


def capacity_period_s(request: pb.CapacityRequest) -> float:
    """Pause between two reports.

    Raises:
        CallRefusedError: ``INVALID_ARGUMENT``: it is out of its range.
    """
    period_s = request.period_s or USUAL_PERIOD_S
    if not LEAST_PERIOD_S <= period_s <= MOST_PERIOD_S:
        message = f"period_s: must be 0 or within {LEAST_PERIOD_S:g} to {MOST_PERIOD_S:g}"
        raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, message)
    return period_s
