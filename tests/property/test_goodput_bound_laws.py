"""Laws of the Goodput bound: no run exceeds it, more replicas raise it, and it is never above what is offered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data.catalog.load import load_catalog
from data.fleet.reference import reference_fleet
from data.types import Request
from planner.bound import GoodputBound, goodput_bound
from planner.sim.result import RunResult
from planner.sim.run import simulate
from planner.sim.settings import SimSettings
from router.build import endpoint_specs
from router.endpoints import EndpointSpec, EndpointTable
from router.registry import make_policy
from router.slomax.registry import flow_factory

FLEET = reference_fleet("mixed-pool")
ALL = endpoint_specs(FLEET, load_catalog(), FLEET.placement)
CLASSES = ("interactive", "long_context", "batch")
POLICIES = ("least_request", "kv_cost_dynamo", "tokenpilot")
BLOCK = 512
scenes = st.fixed_dictionaries({
    "seed": st.integers(0, 2**32 - 1),
    "cards": st.lists(st.sampled_from((0, 4, 7)), min_size=1, max_size=3),
    "count": st.integers(1, 60),
    "span_s": st.sampled_from((0.01, 2.0, 20.0)),
    "prompt": st.sampled_from((300, 3000, 30_000)),
    "output": st.sampled_from((2, 40, 400)),
    "shared": st.sampled_from((0.0, 0.5, 0.95)),
    "noise": st.sampled_from((0.0, 0.02, 0.2)),
    "narrow": st.sampled_from(({}, {"kv_capacity_tokens": 20_000}, {"max_seqs": 4})),
})  # fmt: skip


def trace_of(scene: dict[str, object], rng: np.random.Generator) -> list[Request]:
    """Prompts that go on from the blocks of earlier ones in a share of cases."""
    chains: list[tuple[int, ...]] = []
    found = []
    for at, arrival_s in enumerate(np.sort(rng.uniform(0.0, scene["span_s"], scene["count"])).tolist()):
        tokens, output = int(rng.integers(1, scene["prompt"])), int(rng.integers(1, scene["output"]))
        blocks = -(-tokens // BLOCK)
        chain: tuple[int, ...] = ()
        if chains and rng.random() < scene["shared"]:
            before = chains[int(rng.integers(len(chains)))]
            chain = before[: int(rng.integers(0, min(len(before), blocks) + 1))]
        chain += tuple(int(one) for one in rng.integers(1, 2**62, blocks - len(chain)))
        chains.append(chain)
        kind = CLASSES[int(rng.choice(3, p=(0.6, 0.3, 0.1)))]
        found.append(Request(at, arrival_s, tokens, output, output, chain, BLOCK, workload_class=kind))
    return found


def cards_of(scene: dict[str, object]) -> list[EndpointSpec]:
    return [replace(ALL[at], **scene["narrow"]) for at in scene["cards"]]


def run(
    specs: list[EndpointSpec], offered: list[Request], policy: str, sim: SimSettings, flow: str | None = None
) -> RunResult:
    table = EndpointTable(specs)
    made = None if flow is None else flow_factory(flow, {}, None)
    return simulate(FLEET, specs, offered, make_policy(policy, {}, table, seed=1), sim, table=table, flow=made)


def check(found: GoodputBound, result: RunResult, whole: bool) -> None:
    assert result.total.good_output_tokens <= found.good_tokens * (1 + 1e-9)
    if whole:
        assert result.total.goodput_tokens_per_s <= found.goodput_tokens_per_s * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(scenes)
def test_no_run_exceeds_the_bound_nor_one_that_serves_a_chosen_part(scene: dict[str, object]) -> None:
    """Whoever refuses some requests runs the others: parts chosen with hindsight press harder than any policy."""
    rng = np.random.default_rng(scene["seed"])
    offered, specs = trace_of(scene, rng), cards_of(scene)
    sim = SimSettings(seed=3, step_noise=scene["noise"])
    found = goodput_bound(FLEET, specs, offered, sim)
    assert found.good_tokens <= found.possible_tokens * (1 + 1e-9) <= found.offered_tokens * (1 + 1e-9)
    for policy in POLICIES:
        check(found, run(specs, offered, policy, sim), whole=True)
    cheapest = sorted(offered, key=lambda one: one.input_tokens / one.output_tokens)
    for share in rng.uniform(0.2, 1.0, 3):
        part = sorted(cheapest[: max(1, int(share * len(cheapest)))], key=lambda one: one.arrival_s)
        check(found, run(specs, part, "least_request", sim), whole=False)


@settings(max_examples=15, deadline=None)
@given(scenes)
def test_flow_control_stays_below_the_bound(scene: dict[str, object]) -> None:
    offered, specs = trace_of(scene, np.random.default_rng(scene["seed"])), cards_of(scene)
    sim = SimSettings(seed=3, step_noise=scene["noise"], cancel_share=0.2, retries=2)
    check(goodput_bound(FLEET, specs, offered, sim), run(specs, offered, "tokenpilot", sim, "slomax"), whole=True)


@settings(max_examples=20, deadline=None)
@given(scenes, st.sampled_from((0, 4, 7)))
def test_another_replica_never_lowers_the_bound(scene: dict[str, object], card: int) -> None:
    offered, specs = trace_of(scene, np.random.default_rng(scene["seed"])), cards_of(scene)
    sim = SimSettings(step_noise=scene["noise"])
    less = goodput_bound(FLEET, specs, offered, sim).good_tokens
    more = goodput_bound(FLEET, [*specs, replace(ALL[card], **scene["narrow"])], offered, sim).good_tokens
    # The search for rows stops early, so that the larger fleet's bound may be the sharper one by a little.
    assert more >= less * (1 - 0.01)


def test_an_engine_that_is_always_full_comes_near_the_bound() -> None:
    """The bound is no mere count of what is offered."""
    offered = [Request(at, 0.0, 2000, 400, 400, workload_class="batch") for at in range(2500)]
    sim = SimSettings(step_noise=0.0)
    found = goodput_bound(FLEET, [ALL[0]], offered, sim)
    good = run([ALL[0]], offered, "least_request", sim).total.good_output_tokens
    assert found.good_tokens < 0.8 * found.offered_tokens
    assert 0.75 * found.good_tokens <= good <= found.good_tokens
