"""Small parts of the service: paths, class lengths, planned drains, prompt hashes, health of endings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from data.catalog.types import ServiceTimes
from data.fleet.types import Fleet, Link, Site, WorkloadClass
from data.plan import PlanDocument, PlannedReplicas, PlanStatus
from data.types import Slo
from router.endpoints import VACANT, EndpointSpec, EndpointTable
from router.prompts.prefix_scope import PUBLIC, ScopeKeys
from router.prompts.prompt import Prompt
from router.prompts.prompt_hashes import ScopedHashes
from router.serving.class_lengths import ClassLengths
from router.serving.clock import ServiceClock
from router.serving.fleet_rows import LiveEndpoint
from router.serving.paths import PathTable
from router.serving.planned_drain import planned_drain

TIMES = ServiceTimes(p0=0.01, p1=1e-4, p2=0.0, d0=0.01, d1=1e-4, d2=1e-8)


def spec(name: str, site: str = "B", config: str = "c") -> EndpointSpec:
    return EndpointSpec(name, site, "m@1", config, "H100", 1, TIMES, 1000, 100, 8, 1000)


def fleet() -> Fleet:
    sites = (Site("B", "compute", "z"), Site("A", "entry", "z"), Site("C", "compute", "z"))
    return Fleet("f", sites, (Link("A", "B", 0.01, 1.0),), (), (), (), (), ())


def test_paths_follow_the_links_and_the_table() -> None:
    table = EndpointTable([spec("x"), spec("y", "C"), VACANT])
    paths = PathTable(fleet(), table)
    assert paths.default_origin == "A"
    assert paths.known("C")
    assert not paths.known("Z")
    found = paths.of("A")
    assert found.rtt_s.tolist() == [0.01, np.inf, 0.0]
    assert found.reachable is not None
    assert found.reachable.tolist() == [True, False, True]
    table.put(1, spec("z"))
    assert paths.of("A").rtt_s.tolist() == [0.01, 0.01, 0.0]
    assert paths.of("A").reachable is None


def test_class_lengths_start_as_declared_and_learn() -> None:
    kind = WorkloadClass("a", Slo(), expected_output_tokens=100)
    lengths = ClassLengths([kind])
    assert lengths.mean("a") == 100.0
    for _ in range(20):
        lengths.learn("a", 300)
    assert lengths.mean("a") == pytest.approx(200.0)
    lengths.learn("gone", 5)
    other = lengths.with_classes([kind, WorkloadClass("b", Slo(), expected_output_tokens=7)])
    assert (other.mean("a"), other.mean("b")) == (lengths.mean("a"), 7.0)
    other.learn("a", 10_000)
    assert lengths.mean("a") == pytest.approx(200.0)


def plan(**replicas: int) -> PlanDocument:
    planned = tuple(PlannedReplicas("B", config, "m@1", "H100", 1, count) for config, count in replicas.items())
    return PlanDocument(
        "p1", None, "", "", "", "f", {}, PlanStatus.OPTIMAL, 0.0, 0.0, 0.0, "", planned
    )  # fmt: skip


def test_a_plan_drains_the_last_endpoints_of_each_configuration() -> None:
    endpoints = [LiveEndpoint(spec(f"B/c/{i}")) for i in (10, 2, 1, 0)] + [LiveEndpoint(spec("B/d/0", config="d"))]
    assert planned_drain(plan(c=2, d=1), endpoints) == ["B/c/2", "B/c/10"]
    assert planned_drain(plan(c=9, d=9), endpoints) == []
    assert planned_drain(plan(c=4), endpoints) == ["B/d/0"]


def test_what_drains_anyway_is_counted_first() -> None:
    endpoints = [LiveEndpoint(spec("B/c/0"), draining=True), LiveEndpoint(spec("B/c/1"))]
    assert planned_drain(plan(c=1), endpoints) == ["B/c/0"]


def prompt(**given: Any) -> Prompt:
    values: dict[str, Any] = {
        "model": "m@1",
        "tenant": "shop",
        "adapter": "",
        "cache_scope": "",
        "media_digest": "",
        "token_ids": np.arange(64, dtype=np.uint32).tobytes(),
        "block_hashes": b"",
        "block_tokens": 16,
    }
    return Prompt(**{**values, **given})


@pytest.mark.parametrize(
    "given",
    [
        {"tenant": "bank"},
        {"cache_scope": "x"},
        {"adapter": "lora"},
        {"model": "m@2"},
        {"media_digest": "d"},
        {"token_ids": np.arange(1, 65, dtype=np.uint32).tobytes()},
    ],
)
@pytest.mark.parametrize("own", [False, True])
def test_hashes_part_whatever_must_not_share_a_cache(given: dict[str, Any], own: bool) -> None:
    hasher = ScopedHashes(ScopeKeys(b"0123456789abcdef"))
    kind: dict[str, Any] = {"token_ids": b"", "block_hashes": bytes(range(32))} if own else {}
    if own and "token_ids" in given:
        given = {"block_hashes": bytes(range(1, 33))}
    one, same, other = prompt(**kind), prompt(**kind), prompt(**{**kind, **given})
    assert len(hasher.hashed(one).blocks) == 4
    assert hasher.hashed(one).blocks == hasher.hashed(same).blocks
    assert not set(hasher.hashed(one).blocks) & set(hasher.hashed(other).blocks)


def test_without_a_tenant_there_is_nothing_to_part() -> None:
    hasher = ScopedHashes(ScopeKeys(b"0123456789abcdef"))
    assert hasher.hashed(prompt(tenant="")).cache_salt == PUBLIC
    assert hasher.hashed(prompt(tenant="", cache_scope="x")).cache_salt != PUBLIC
    assert hasher.hashed(prompt()).cache_salt not in (PUBLIC, hasher.hashed(prompt(tenant="bank")).cache_salt)


def test_the_clock_never_steps_back() -> None:
    clock = ServiceClock()
    times = [clock() for _ in range(1000)]
    assert times == sorted(times)
    assert times[0] > 1.7e9
