"""Does a fleet whose names and ranges are sound fit together?"""

from dataclasses import replace

import pytest

from data.catalog.load import load_catalog
from data.errors import FleetFileError
from data.fleet.check import check_fleet
from data.fleet.dump import dump_fleet
from data.fleet.load import parse_fleet
from data.fleet.reference import reference_fleet
from data.fleet.structure import unstated_gpus
from data.fleet.types import (
    EngineSettings,
    Link,
    Placed,
    ReplicaConfig,
    Reservation,
    Site,
    Tenant,
)
from data.types import Slo


@pytest.fixture
def fleet():
    return reference_fleet("four-sites")


def faults(fleet):
    return [str(problem) for problem in check_fleet(fleet, load_catalog())]


def test_reference_fleets_are_sound(fleet):
    assert faults(fleet) == []


def test_f101_gpus_in_use_are_replicas_times_gpus_per_replica(fleet):
    """B has 22 H100 to give: 6 + 3 + 5 single-GPU replicas and 2 replicas of 4 GPUs use all of them."""
    placed = [p for p in fleet.placement if p.site == "B" and fleet.config(p.config).gpu_type == "H100"]
    assert sum(p.replicas * fleet.config(p.config).tensor_parallel for p in placed) == 22
    one_more = tuple(
        replace(p, replicas=p.replicas + 1) if p.config == "analyst-h100-tp4" else p for p in fleet.placement
    )
    (message,) = faults(replace(fleet, placement=one_more))
    assert message.startswith("placement[3].replicas: 26 H100 used at B by replicas up to here (got 3)")
    assert "at most 22 GPUs" in message


def test_f100_gpus_that_are_not_stated_are_never_guessed(fleet):
    """Without a count the replicas may stand, and are reported as frozen; the file survives the round trip."""
    unknown = replace(fleet, pools=tuple(p for p in fleet.pools if (p.site, p.gpu_type) != ("D", "A100")))
    assert faults(unknown) == []
    assert unstated_gpus(unknown) == [("D", "A100")]
    assert unstated_gpus(fleet) == []
    assert parse_fleet(dump_fleet(unknown), "x") == unknown
    with pytest.raises(FleetFileError, match=r"gpu_pools.0..count: missing key"):
        parse_fleet(dump_fleet(fleet).replace("count: 24, ", ""), "x")


def test_an_entry_site_owns_no_gpus_and_holds_no_replicas(fleet):
    pools = (replace(fleet.pools[0], site="A"), *fleet.pools[1:])
    assert any(
        m.startswith("gpu_pools[0].site: an entry site owns no GPUs") for m in faults(replace(fleet, pools=pools))
    )
    (message,) = faults(replace(fleet, placement=(Placed("A", "coder-h100", 1),)))
    assert message.startswith("placement[0].site: an entry site holds no replicas (got 'A'); expected one of B, D")


def test_pools_need_gpus_and_reserve_at_most_all_of_them(fleet):
    pools = (*fleet.pools[:4], replace(fleet.pools[4], count=0), replace(fleet.pools[5], reserved_gpus=13))
    messages = faults(replace(fleet, pools=pools, placement=()))
    assert messages[0].startswith("gpu_pools[4].count: pool without GPUs")
    assert messages[1].startswith("gpu_pools[5].reserved_gpus: more GPUs reserved than there are (got 13)")


def test_links_join_two_sites_and_every_entry_is_connected(fleet):
    loop = replace(fleet, links=(*fleet.links, Link("C", "C", 0.01, 1)))
    assert faults(loop) == ["links[6].b: a link joins two different sites (got 'C')"]
    cut = replace(fleet, links=tuple(link for link in fleet.links if link.a != "A"))
    assert faults(cut) == ["sites[0]: entry site without a link to a compute site (got 'A')"]


def test_a_configuration_that_the_catalog_does_not_know(fleet):
    bad = ReplicaConfig("analyst-one", "analyst@v1", "H100", 1)
    (message,) = faults(replace(fleet, configs=(*fleet.configs, bad)))
    assert message.startswith("configs[15]: the catalog has no llama-3.3-70b on 1 x H100 (got 'analyst-one')")
    assert "H100 x 2/4/8" in message


def test_the_context_limit_must_fit_the_kv_cache(fleet):
    bad = ReplicaConfig("analyst-two", "analyst@v1", "H100", 2)
    (message,) = faults(replace(fleet, configs=(*fleet.configs, bad)))
    room = load_catalog().facts("llama-3.3-70b", "H100", 2).kv_capacity_tokens
    assert message.startswith(f"configs[15]: holds {room} KV tokens, less than the model's context limit")
    assert f"at most {room} (now 32768)" in message


def test_a_small_memory_share_leaves_no_room_for_kv(fleet):
    models = (replace(fleet.models[0], engine=EngineSettings(gpu_memory_utilization=0.2)), *fleet.models[1:])
    messages = faults(replace(fleet, models=models))
    assert any("16.06 GB of weights leave no room for KV on 1 x H100" in message for message in messages)


def test_a_class_needs_a_target(fleet):
    classes = (replace(fleet.classes[0], slo=Slo()), replace(fleet.classes[1], slo=Slo(ttft_s=9, deadline_s=3)))
    messages = faults(replace(fleet, classes=(*classes, fleet.classes[2])))
    assert messages[0].startswith("classes[0].slo: no target is set")
    assert messages[1].startswith("classes[1].slo.deadline_s: before the first token (got 3)")


@pytest.mark.parametrize(
    ("tenant", "message"),
    [
        (Tenant("t", sites=("C",), residency_zones=("west",)), "no compute site passes both"),
        (Tenant("t", sites=("A",)), "no compute site passes both"),
        (Tenant("t", reservations=(Reservation("coder@v1"),)), "reservations[0]: promises nothing"),
        (
            Tenant("t", models=("coder@v1",), reservations=(Reservation("analyst@v1", 1),)),
            "reservations[0].model: the tenant may not use this model",
        ),
        (
            Tenant("t", residency_zones=("west",), reservations=(Reservation("coder@v1", 1, sites=("B",)),)),
            "reservations[0].sites[0]: the tenant may not use this site (got 'B')",
        ),
    ],
)
def test_tenants_and_their_promises(fleet, tenant, message):
    (found,) = faults(replace(fleet, tenants=(*fleet.tenants, tenant)))
    assert found.startswith("tenants[6]")
    assert message in found


def test_a_promise_needs_a_configuration_that_can_stand_where_it_is_promised(fleet):
    configs = tuple(c for c in fleet.configs if c.model != "coder@v1" or c.gpu_type == "L40S")
    placement = tuple(p for p in fleet.placement if not p.config.startswith("coder"))
    tenant = Tenant("t", sites=("D",), reservations=(Reservation("coder@v1", replicas=1),))
    changed = replace(fleet, configs=configs, placement=placement, tenants=(tenant,))
    (message,) = faults(changed)
    assert message.startswith("tenants[0].reservations[0]: no configuration of coder@v1 can stand at D")


def test_prewarmed_copies_fit_host_memory(fleet):
    placement = (Placed("D", "analyst-a100-tp4", 0, prewarmed=10), Placed("D", "analyst-h100-tp4", 0, prewarmed=5))
    (message,) = faults(replace(fleet, placement=placement))
    assert message.startswith(
        "placement[1].prewarmed: prewarmed copies need 2116.5 GB of host memory at D (got 5)"
    )


def test_an_empty_fleet_says_what_is_missing(fleet):
    empty = replace(fleet, sites=(Site("A", "entry", "z"),), links=(), pools=(), models=(), configs=(), classes=())
    messages = faults(replace(empty, tenants=(), placement=()))
    assert [message.split(":")[0] for message in messages] == ["classes", "configs", "models", "sites", "sites[0]"]
