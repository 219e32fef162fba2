"""Hard filters and the reason when nothing is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from data.errors import SettingError
from data.fleet.types import Fleet, Model, Site, Tenant
from data.types import RefusalReason
from router.endpoints import EndpointTable
from router.filters import FilterRules, FilterSettings, eligible, refusal_reason
from router.types import RouteRequest

Tables = Callable[..., EndpointTable]
Requests = Callable[..., RouteRequest]

FLEET = Fleet(
    name="f",
    sites=(
        Site("eu-1", "compute", "eu"),
        Site("eu-2", "compute", "eu"),
        Site("us-1", "compute", "us"),
    ),
    links=(),
    pools=(),
    models=(Model("m", "1", "x", 131_072), Model("m", "2", "x", 131_072), Model("idle", "1", "x", 1000)),
    configs=(),
    classes=(),
    tenants=(
        Tenant("t"),
        Tenant("acme", residency_zones=("eu",)),
        Tenant("local", sites=("us-1",)),
        Tenant("other", models=("m@2",)),
    ),
)
SITES = ("eu-1", "eu-2", "us-1")


@pytest.fixture
def table(make_table: Tables) -> EndpointTable:
    """Rows 0 to 2 at eu-1, eu-2, us-1."""
    return make_table(3, sites=SITES)


def rows(request: RouteRequest, table: EndpointTable, rules: FilterRules) -> list[int]:
    """Eligible rows; the reason must agree with them."""
    found = eligible(request, table, rules).tolist()
    assert (refusal_reason(request, table, rules) is None) == bool(found)
    return found


def test_permission_residency_and_model_decide_first(table: EndpointTable, make_request: Requests) -> None:
    rules = FilterRules(FLEET, table)
    assert rows(make_request(tenant="t"), table, rules) == [0, 1, 2]
    assert rows(make_request(tenant="acme"), table, rules) == [0, 1]
    assert rows(make_request(tenant="local"), table, rules) == [2]
    assert rows(make_request(tenant="other"), table, rules) == []
    assert refusal_reason(make_request(tenant="other"), table, rules) is RefusalReason.NO_PERMITTED_SITE


def test_life_cycle_and_health(table: EndpointTable, make_request: Requests) -> None:
    rules = FilterRules(FLEET, table)
    table.ready[0] = False
    table.draining[1] = True
    assert rows(make_request(), table, rules) == [2]
    table.healthy[2] = False
    assert rows(make_request(), table, rules) == []
    assert refusal_reason(make_request(), table, rules) is RefusalReason.ALL_UNHEALTHY
    table.ready[2] = False
    assert refusal_reason(make_request(), table, rules) is RefusalReason.NO_ENDPOINT


def test_context_and_kv_room(make_table: Tables, make_request: Requests) -> None:
    table = make_table(2)
    rules = FilterRules(replace(FLEET, sites=(Site("B", "compute", "eu"),)), table)
    table.context_limit_tokens[:] = [2000, 8000]
    table.kv_capacity_tokens[:] = [9000, 5000]
    rules = FilterRules(rules._fleet, table)
    assert rows(make_request(input_tokens=1600, output_budget=400), table, rules) == [0, 1]
    assert rows(make_request(input_tokens=1600, output_budget=401), table, rules) == [1]
    too_long = make_request(input_tokens=9000, output_budget=1)
    assert rows(too_long, table, rules) == []
    assert refusal_reason(too_long, table, rules) is RefusalReason.CONTEXT_TOO_LONG
    no_room = make_request(input_tokens=6000, output_budget=1)
    assert rows(no_room, table, rules) == []
    assert refusal_reason(no_room, table, rules) is RefusalReason.CONTEXT_TOO_LONG


def test_the_load_ceiling_is_optional(table: EndpointTable, make_request: Requests) -> None:
    table.inflight[:] = [300, 200, 204]
    assert rows(make_request(), table, FilterRules(FLEET, table)) == [0, 1, 2]
    ceiling = FilterRules(FLEET, table, FilterSettings(load_ceiling=0.8))
    assert rows(make_request(), table, ceiling) == [1, 2]
    table.inflight[:] = 256
    assert rows(make_request(), table, ceiling) == []
    assert refusal_reason(make_request(), table, ceiling) is RefusalReason.OVERLOADED
    with pytest.raises(SettingError, match="above 0"):
        FilterSettings(load_ceiling=0.0)


def test_lost_home_sites_never_lead_abroad_f113(table: EndpointTable, make_request: Requests) -> None:
    """F113: eu-1 down, eu-2 at its ceiling, us-1 idle: nothing goes to us-1, on a first try or a retry."""
    rules = FilterRules(FLEET, table, FilterSettings(load_ceiling=1.0))
    table.healthy[0] = False
    table.inflight[1] = 256
    for attempt in (0, 1, 2):
        request = make_request(tenant="acme", attempt=attempt)
        assert rows(request, table, rules) == []
        assert refusal_reason(request, table, rules) is RefusalReason.OVERLOADED
    table.healthy[1] = False
    assert refusal_reason(make_request(tenant="acme"), table, rules) is RefusalReason.NO_PERMITTED_SITE
    table.healthy[1], table.inflight[1] = True, 255
    assert rows(make_request(tenant="acme"), table, rules) == [1]


def test_unhealthy_rows_are_not_candidates_f005(table: EndpointTable, make_request: Requests) -> None:
    """F005: statistics are taken over candidates, and an unhealthy endpoint is none."""
    table.healthy[2] = False
    assert rows(make_request(), table, FilterRules(FLEET, table)) == [0, 1]


def test_unknown_names_have_their_own_reasons(table: EndpointTable, make_request: Requests) -> None:
    rules = FilterRules(FLEET, table)
    assert rows(make_request(tenant="nobody"), table, rules) == []
    assert refusal_reason(make_request(tenant="nobody"), table, rules) is RefusalReason.UNKNOWN_TENANT
    assert refusal_reason(make_request(model="m@9"), table, rules) is RefusalReason.UNKNOWN_MODEL
    assert refusal_reason(make_request(model="idle@1"), table, rules) is RefusalReason.NO_ENDPOINT
    for i in range(100):
        eligible(make_request(tenant=f"made-up-{i}"), table, rules)
    assert not rules._permitted


def test_a_fleet_without_tenants_permits_everybody(table: EndpointTable, make_request: Requests) -> None:
    rules = FilterRules(replace(FLEET, tenants=()), table)
    assert rows(make_request(tenant="anyone"), table, rules) == [0, 1, 2]


def test_versions_are_different_models(table: EndpointTable, make_request: Requests) -> None:
    table.models[:] = np.array(["m@1", "m@2", "m@1"], dtype=object)
    rules = FilterRules(FLEET, table)
    assert rows(make_request(model="m@2"), table, rules) == [1]
    assert rows(make_request(model="m@1"), table, rules) == [0, 2]


def test_requests_within_all_limits_pass_by_the_short_way(make_table: Tables, make_request: Requests) -> None:
    """With a ceiling that nothing reaches every filter is asked one by one: the same endpoints must be left."""
    table, random = make_table(40, sites=SITES), np.random.default_rng(0)
    table.context_limit_tokens[:] = random.integers(1000, 3000, 40)
    table.kv_capacity_tokens[:] = random.integers(1000, 3000, 40)
    short, long = FilterRules(FLEET, table), FilterRules(FLEET, table, FilterSettings(load_ceiling=1e9))
    for number in range(60):
        for column in (table.ready, table.healthy, table.draining):
            column[:] = random.random(40) < 0.6
        request = make_request(
            tenant=("t", "acme", "local")[number % 3],
            input_tokens=int(random.integers(1, 3200)),
            output_budget=int(random.integers(1, 800)),
        )
        assert rows(request, table, short) == rows(request, table, long)
