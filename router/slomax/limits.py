"""The limits of a tenant at one router: the one place where they are resolved.

A limit is set for a tenant in the fleet file, or the tenant has none. Each router process keeps its own counts and
grants ``budget_share`` of every limit (1 for a single router, 1/n for n that share the traffic), so nothing that
routers would have to share can fail, and no failure can turn a limit into none. Waiting time has the least of
three bounds: the router's ``max_ttl_s``, the class's ``queue_ttl_s`` and the caller's own; see
``Admission.ttl_s``.
"""

from __future__ import annotations

from dataclasses import dataclass

from data.fleet.types import Tenant


@dataclass(frozen=True, slots=True)
class Limits:
    """What one tenant may use here; ``None`` = not limited, 0 = nothing.

    Attributes:
        tokens_per_s: Prompt and output tokens a second.
        requests_per_s: Requests a second.
        concurrent: Requests in flight or waiting at a time.
    """

    tokens_per_s: float | None = None
    requests_per_s: float | None = None
    concurrent: int | None = None


def limits_of(tenant: Tenant, share: float) -> Limits:
    """The limits of a tenant at a router that grants ``share`` (above 0, at most 1) of each.

    A share of a few concurrent requests is rounded down, but leaves one.
    """
    concurrent = tenant.concurrent_budget
    return Limits(
        _part(tenant.tokens_per_s_budget, share),
        _part(tenant.requests_per_s_budget, share),
        None if concurrent is None else max(int(concurrent * share), min(concurrent, 1)),
    )


def _part(limit: float | None, share: float) -> float | None:
    return None if limit is None else limit * share
