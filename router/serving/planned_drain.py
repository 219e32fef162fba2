"""Which endpoints drain because the plan wants fewer replicas than there are."""

from __future__ import annotations

from collections.abc import Iterable

from data.plan import PlanDocument
from router.serving.fleet_rows import LiveEndpoint


def planned_drain(plan: PlanDocument, endpoints: Iterable[LiveEndpoint]) -> list[str]:
    """Ids of the endpoints beyond the planned number of their site and configuration.

    Those that drain anyway go first, then the last by id; so an unchanged plan always names the same ones.
    """
    keep = {(entry.site, entry.config): entry.replicas for entry in plan.replicas}
    groups: dict[tuple[str, str], list[LiveEndpoint]] = {}
    for endpoint in endpoints:
        groups.setdefault((endpoint.spec.site, endpoint.spec.config), []).append(endpoint)
    leaving: list[str] = []
    for key, members in groups.items():
        members.sort(key=lambda live: (live.draining, _natural(live.endpoint_id)))
        leaving += [live.endpoint_id for live in members[keep.get(key, 0) :]]
    return leaving


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key that puts ``x/9`` before ``x/10``."""
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in name.split("/"))
