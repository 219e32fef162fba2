"""Endpoints from fleet, catalog and placement."""

from __future__ import annotations

from dataclasses import replace

import pytest

from data.catalog.load import load_catalog
from data.errors import InputError
from data.fleet.types import EngineSettings, Fleet, Model, Placed, ReplicaConfig, Site
from router.build import endpoint_specs

ENGINE = EngineSettings(max_num_batched_tokens=4096, max_num_seqs=128, block_tokens=32)
CATALOG = load_catalog()
FACTS = next(facts for facts in CATALOG.replicas() if facts.tensor_parallel == 1)


def fleet_of(engine: EngineSettings = ENGINE) -> Fleet:
    return Fleet(
        name="f",
        sites=(Site("B", "compute", "z"), Site("C", "compute", "z")),
        links=(),
        pools=(),
        models=(Model("m", "1", FACTS.catalog_model, 32_768, engine),),
        configs=(ReplicaConfig("small", "m@1", FACTS.gpu_type, 1),),
        classes=(),
        tenants=(),
    )


def test_one_endpoint_a_replica() -> None:
    placement = (Placed("B", "small", 2, prewarmed=3), Placed("C", "small", 1), Placed("B", "small", 1))
    specs = endpoint_specs(fleet_of(), CATALOG, placement)
    assert [spec.endpoint_id for spec in specs] == ["B/small/0", "B/small/1", "C/small/0", "B/small/2"]
    assert [spec.site for spec in specs] == ["B", "B", "C", "B"]
    first = specs[0]
    assert (first.model, first.config, first.gpu_type, first.gpus) == ("m@1", "small", FACTS.gpu_type, 1)
    assert (first.batch_token_budget, first.max_seqs, first.prefix_block_tokens) == (4096, 128, 32)
    assert first.context_limit_tokens == 32_768
    assert first.times == FACTS.times
    assert first.kv_capacity_tokens == FACTS.kv_capacity_tokens


def test_memory_share_changes_the_kv_room() -> None:
    placement = (Placed("B", "small", 1),)
    more = endpoint_specs(fleet_of(replace(ENGINE, gpu_memory_utilization=0.95)), CATALOG, placement)[0]
    assert more.kv_capacity_tokens > FACTS.kv_capacity_tokens
    with pytest.raises(InputError, match="no memory is left for KV"):
        endpoint_specs(fleet_of(replace(ENGINE, gpu_memory_utilization=0.01)), CATALOG, placement)


def test_an_unknown_configuration_is_an_error() -> None:
    with pytest.raises(KeyError, match="large"):
        endpoint_specs(fleet_of(), CATALOG, (Placed("B", "large", 1),))
