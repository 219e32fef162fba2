"""What the endpoints of a fleet are, keyed as the log names them: from the fleet file and the catalog."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from data.catalog.types import ReplicaFacts
from data.errors import InputError
from data.fleet.types import Fleet
from models.features import EndpointKind
from models.samples import KindKey


class FactsLookup(Protocol):
    """The part of the catalog that is needed here."""

    def facts(self, catalog_model: str, gpu_type: str, tensor_parallel: int) -> ReplicaFacts:
        """Service times and memory of one (model, GPU type, tensor-parallel degree); an input error if unknown."""
        ...


def fleet_kinds(fleets: Iterable[Fleet], catalog: FactsLookup) -> dict[KindKey, EndpointKind]:
    """Kinds of all replica configurations of the fleets.

    Raises:
        InputError: Two fleets mean different things by the same model key, GPU type and degree.
    """
    kinds: dict[KindKey, EndpointKind] = {}
    for fleet in fleets:
        for config in fleet.configs:
            model = fleet.model(config.model)
            facts = catalog.facts(model.catalog, config.gpu_type, config.tensor_parallel)
            kind = EndpointKind(
                gpu_type=config.gpu_type,
                gpus=config.tensor_parallel,
                model=model.key,
                batch_token_budget=model.engine.max_num_batched_tokens,
                kv_capacity_tokens=facts.kv_capacity_tokens,
                times=facts.times,
            )
            key = (model.key, config.gpu_type, config.tensor_parallel)
            if kinds.setdefault(key, kind) != kind:
                raise InputError(
                    "two fleets differ in a configuration of the same model and GPU",
                    source=fleet.name,
                    field=config.name,
                    expected="name the one fleet that the log was written with",
                )
    return kinds
