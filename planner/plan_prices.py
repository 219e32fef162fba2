"""Rows of the plan document that tell what one more unit of each resource that is used up is worth."""

from __future__ import annotations

from collections.abc import Sequence

from data.plan import ShadowPrice
from planner.placement_input import PlacementInput
from solver.explain_moves import ResourcePrice, one_more
from solver.solution import MISS_TOLERANCE

UNITS = {"gpus": "GPU", "power": "kW", "ingress": "tokens/s", "host_memory": "GB", "start_budget": "GPU"}
LEAST_WORTH_SHARE = 1e-5
"""Prices below this share of the value of all demand are left out: they only break ties."""


def shadow_prices(given: PlacementInput, prices: Sequence[ResourcePrice]) -> tuple[ShadowPrice, ...]:
    """The rows, dearest first."""
    jobs = given.problem.commodities
    least = LEAST_WORTH_SHARE * float((jobs.width * jobs.value).sum())
    rows: list[ShadowPrice] = []
    for price in prices:
        pools = given.problem.pools
        site = int(pools.site[price.index]) if price.kind == "gpus" else price.index
        mends = _mends(given, price)
        if price.worth <= least and not mends:
            continue
        rows.append(
            ShadowPrice(
                resource=price.kind,
                site=given.sites[site].name,
                gpu_type=pools.gpu_type[price.index] if price.kind == "gpus" else "",
                amount=one_more(price.kind),
                unit=UNITS[price.kind],
                worth=round(price.worth, 3),
                tokens_per_s=round(price.tokens_per_s, 3),
                mends=mends,
            )
        )
    return tuple(sorted(rows, key=lambda row: (not row.mends, -row.worth, row.resource, row.site, row.gpu_type)))


def _mends(given: PlacementInput, price: ResourcePrice) -> str:
    problem, mended = given.problem, price.mended
    parts = [
        f"{amount:.2g} replicas of {promise.label}"
        for promise, amount in zip(problem.replica_promises, mended.replicas.tolist(), strict=True)
        if amount > MISS_TOLERANCE
    ]
    parts += [
        f"{amount:.3g} tokens/s of {promise.label}"
        for promise, amount in zip(problem.flow_promises, mended.flows.tolist(), strict=True)
        if amount > MISS_TOLERANCE * promise.tokens_per_s
    ]
    parts += [
        f"{amount:.3g} tokens/s of {cover.label} that would survive the loss of a site"
        for cover, amount in zip(problem.covers, mended.covers.tolist(), strict=True)
        if amount > MISS_TOLERANCE * cover.tokens_per_s
    ]
    return "; ".join(parts)
