"""The built-in fleets and how a fleet is found by name or path."""

import pytest

from data.errors import FleetFileError
from data.fleet.reference import REFERENCE_FLEETS, reference_fleet, reference_path, resolve_fleet


def gpus(fleet):
    return {(pool.site, pool.gpu_type): pool.count for pool in fleet.pools}


def test_one_pool_is_eight_equal_replicas():
    fleet = reference_fleet("one-pool")
    assert gpus(fleet) == {("main", "H100"): 8}
    assert [(p.config, p.replicas) for p in fleet.placement] == [("assistant-h100", 8)]
    assert fleet.models[0].catalog == "llama-3.1-8b"


def test_mixed_pool_runs_one_model_on_three_gpu_types():
    fleet = reference_fleet("mixed-pool")
    assert len(fleet.models) == 1
    assert gpus(fleet) == {("main", "L40S"): 4, ("main", "A100"): 3, ("main", "H100"): 2}
    assert sum(p.replicas for p in fleet.placement) == 9


def test_four_sites_has_what_its_description_says():
    fleet = reference_fleet("four-sites")
    assert [site.role for site in fleet.sites] == ["entry", "compute", "compute", "compute"]
    assert fleet.site("C").zone != fleet.site("D").zone
    assert len({model.name for model in fleet.models}) == 3
    assert len(fleet.models) == 4
    assert [kind.name for kind in fleet.classes] == ["interactive", "long_context", "batch"]
    assert len(fleet.tenants) == 6
    assert {tenant.tier for tenant in fleet.tenants} == {"guaranteed", "standard", "best_effort"}
    assert 60 <= sum(pool.count for pool in fleet.pools) <= 90
    used = {site.name: 0 for site in fleet.sites}
    for placed in fleet.placement:
        used[placed.site] += placed.replicas * fleet.config(placed.config).tensor_parallel
    assert used["B"] == 30
    assert used["C"] + used["D"] < 10
    assert {m.key for m in fleet.models} == {fleet.config(p.config).model for p in fleet.placement}


def test_every_tenant_can_use_each_of_its_models_where_one_stands():
    fleet = reference_fleet("four-sites")
    for tenant in fleet.tenants:
        for model in tenant.models:
            homes = {p.site for p in fleet.placement if fleet.config(p.config).model == model}
            assert any(fleet.may_use(tenant, fleet.site(site), model) for site in homes), (tenant.name, model)


def test_resolve_by_name_by_path_and_neither(tmp_path, monkeypatch):
    assert resolve_fleet("one-pool") == reference_fleet("one-pool")
    copy = tmp_path / "mine.yaml"
    copy.write_text(reference_path("mixed-pool").read_text())
    assert resolve_fleet(str(copy)).name == "mixed-pool"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one-pool").write_text(reference_path("mixed-pool").read_text())
    assert resolve_fleet("one-pool").name == "mixed-pool"
    with pytest.raises(
        FleetFileError, match=r"no such file or built-in fleet .got 'four-site'.; expected .*'four-sites'"
    ):
        resolve_fleet("four-site")
    with pytest.raises(FleetFileError, match=r"absent.yaml: cannot be read"):
        resolve_fleet("absent.yaml")
    with pytest.raises(FleetFileError, match=r"no built-in fleet of that name"):
        reference_path("nine-sites")
    assert all(reference_path(name).is_file() for name in REFERENCE_FLEETS)
