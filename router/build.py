"""From a fleet, a catalog and a placement to the endpoints that a router or a simulator works with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from data.catalog.memory import kv_tokens_at
from data.catalog.types import GpuType, ReplicaFacts
from data.errors import InputError
from data.fleet.types import Fleet, Model, Placed, ReplicaConfig
from router.endpoints import EndpointSpec


class CatalogLookup(Protocol):
    """The part of the catalog that endpoints are made from."""

    def facts(self, catalog_model: str, gpu_type: str, tensor_parallel: int) -> ReplicaFacts:
        """Service times and memory of one (model, GPU type, tensor-parallel degree); an input error if unknown."""
        ...

    def gpu(self, name: str) -> GpuType:
        """The GPU type of that name; an input error if unknown."""
        ...


def endpoint_specs(fleet: Fleet, catalog: CatalogLookup, placement: Sequence[Placed]) -> list[EndpointSpec]:
    """One endpoint a replica, in the order of ``placement``; prewarmed copies are not endpoints.

    Ids read ``site/config/number``, for example ``B/llama-8b-h100/0``; entries for the same site and
    configuration are counted on.

    Raises:
        KeyError: If the placement names a configuration or model that the fleet lacks (a checked fleet has none).
        InputError: If the catalog lacks the configuration, or its memory share leaves no room for KV.
    """
    specs: list[EndpointSpec] = []
    seen: dict[tuple[str, str], int] = {}
    for placed in placement:
        first = seen.get((placed.site, placed.config), 0)
        seen[placed.site, placed.config] = first + placed.replicas
        spec = replica_spec(fleet, catalog, "", placed.site, placed.config)
        specs += [
            replace(spec, endpoint_id=f"{placed.site}/{placed.config}/{number}")
            for number in range(first, first + placed.replicas)
        ]
    return specs


def replica_spec(fleet: Fleet, catalog: CatalogLookup, endpoint_id: str, site: str, config: str) -> EndpointSpec:
    """One replica of a configuration at a site.

    Raises:
        KeyError: If the fleet lacks the configuration or its model (a checked fleet has none such).
        InputError: If the catalog lacks the configuration, or its memory share leaves no room for KV.
    """
    how = fleet.config(config)
    model = fleet.model(how.model)
    facts = catalog.facts(model.catalog, how.gpu_type, how.tensor_parallel)
    return EndpointSpec(
        endpoint_id=endpoint_id,
        site=site,
        model=model.key,
        config=how.name,
        gpu_type=how.gpu_type,
        gpus=how.tensor_parallel,
        times=facts.times,
        kv_capacity_tokens=_kv_tokens(catalog, facts, model, how),
        batch_token_budget=model.engine.max_num_batched_tokens,
        max_seqs=model.engine.max_num_seqs,
        context_limit_tokens=model.context_limit_tokens,
        prefix_block_tokens=model.engine.block_tokens,
        load_s=facts.load_s,
    )


def _kv_tokens(catalog: CatalogLookup, facts: ReplicaFacts, model: Model, config: ReplicaConfig) -> int:
    share = model.engine.gpu_memory_utilization
    tokens = kv_tokens_at(facts, catalog.gpu(config.gpu_type), share)
    if tokens <= 0:
        raise InputError(
            "no memory is left for KV",
            field=f"models.{model.key}.engine.gpu_memory_utilization",
            value=share,
            expected=f"a share that leaves room beside the weights on {config.gpu_type}",
        )
    return tokens
