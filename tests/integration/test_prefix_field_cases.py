"""Field cases of prefix reuse that need a router, engines and load at once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from data.catalog.types import ServiceTimes
from data.fleet.types import (
    EngineSettings,
    Fleet,
    GpuPool,
    Link,
    Model,
    ReplicaConfig,
    Site,
    Tenant,
    WorkloadClass,
)
from data.types import Request, Slo
from planner.sim.kv_cache import KvCache
from planner.sim.result import RunResult
from planner.sim.run import simulate
from planner.sim.settings import SimSettings
from router.endpoints import EndpointSpec, EndpointTable
from router.policies.base import PolicyContext
from router.prefix.index import PrefixIndex, PrefixIndexSettings
from router.prompts.block_hashes import hash_tokens
from router.prompts.prefix_scope import Scope
from router.registry import make_policy
from router.tokenpilot import TokenPilot, TokenPilotSettings
from router.types import FleetView, RouteRequest

TIMES = ServiceTimes(0.002, 0.0001, 1e-9, 0.01, 0.0002, 1e-7, 0.001)
ENGINE = EngineSettings(2048, 16, 16)
BLOCK, SHARED, OWN, OUTPUT = 256, 6, 2, 20
REPLICAS = 4


def spec(number: int) -> EndpointSpec:
    return EndpointSpec(
        f"B/{number}", "B", "m@1", "m-x", "X", 1, TIMES, 60_000, 2048, 16, 100_000, 16, 5.0
    )  # fmt: skip


def fleet() -> Fleet:
    return Fleet(
        name="small",
        sites=(Site("A", "entry", "home"), Site("B", "compute", "home")),
        links=(Link("A", "B", 0.0, 10.0),),
        pools=(GpuPool("B", "X", REPLICAS),),
        models=(Model("m", "1", "m", 100_000, ENGINE),),
        configs=(ReplicaConfig("m-x", "m@1", "X", 1),),
        classes=(WorkloadClass("chat", Slo(ttft_s=2.0, tpot_s=0.1), 1.0, 500, OUTPUT),),
        tenants=(Tenant("t"),),
    )


def trace(rate_per_s: float, count: int, seed: int = 0) -> list[Request]:
    """Prompts that begin with one of 24 shared beginnings and end in blocks of their own."""
    rng = np.random.default_rng(seed)
    at = np.cumsum(rng.exponential(1.0 / rate_per_s, count))
    return [
        Request(
            request_id=i,
            arrival_s=float(at[i]),
            input_tokens=(SHARED + OWN) * BLOCK,
            output_tokens=OUTPUT,
            output_budget=OUTPUT,
            block_hashes=(*_shared(int(rng.integers(24))), *rng.integers(1 << 40, 1 << 60, OWN).tolist()),
            block_tokens=BLOCK,
        )
        for i in range(count)
    ]


def _shared(group: int) -> range:
    return range(1 + 100 * group, 1 + 100 * group + SHARED)


def run(rate_per_s: float, count: int = 500) -> RunResult:
    specs = [spec(number) for number in range(REPLICAS)]
    table = EndpointTable(specs)
    policy = make_policy("tokenpilot", {}, table, 1)
    return simulate(fleet(), specs, trace(rate_per_s, count), policy, SimSettings(step_noise=0.0), table=table)


def test_reuse_falls_gently_as_load_rises_f036() -> None:
    """F036: from half to 1.2 of capacity in steps of 5 points, hit tokens never fall by 15 points in one step."""
    # One replica's time for a prompt whose shared part is cached, its decode steps shared by a full batch.
    busy_s = TIMES.p0 + TIMES.p1 * OWN * BLOCK + OUTPUT * (TIMES.d0 / 8 + TIMES.d1)
    capacity = REPLICAS / busy_s
    shares = [run(capacity * percent / 100).total.hit_rate for percent in range(50, 125, 5)]
    assert max(abs(a - b) for a, b in pairwise(shares)) < 0.15, shares
    assert min(shares) > 0.3, shares


def view_of(table: EndpointTable, index: PrefixIndex) -> FleetView:
    return FleetView(1.0, table, index, np.zeros(len(table)))


def request_of(number: int, blocks: tuple[int, ...]) -> RouteRequest:
    slo = Slo(ttft_s=2.0, tpot_s=0.1)
    tokens = len(blocks) * BLOCK or 2048
    return RouteRequest(number, "m@1", "t", "chat", "A", tokens, OUTPUT, 20.0, blocks, BLOCK, "", slo)


def test_the_size_of_what_is_cached_attracts_nobody_f035() -> None:
    """F035: w1 overloaded with unique prompts and w2 idle with a large index: unmatched requests go to w2."""
    table, index = EndpointTable([spec(0), spec(1)]), PrefixIndex(2)
    rng = np.random.default_rng(0)
    index.stored(1, rng.integers(1, 2**60, 3_000, dtype=np.uint64))
    index.stored(0, rng.integers(1, 2**60, 10, dtype=np.uint64))
    table.reported_at_s[:] = 1.0
    table.running[:], table.waiting[:], table.kv_use[:] = [16, 0], [30, 0], [0.9, 0.1]
    table.inflight[:], table.inflight_tokens[:] = [46, 0], [46 * 2000, 0]
    table.inflight_uncached_tokens[:], table.waiting_prefill_s[:] = [30 * 2000, 0], [6.0, 0]
    policy = TokenPilot(TokenPilotSettings(), PolicyContext(table, 0))
    chosen = [
        policy.choose(
            request_of(i, tuple(rng.integers(1, 2**60, 8).tolist())), np.arange(2), view_of(table, index)
        )
        for i in range(100)
    ]
    assert sum(chosen) > 90


def test_decode_only_endpoints_get_no_credit_f032() -> None:
    """F032: endpoints that never prefill hold nothing; a changed role empties what was believed."""
    index = PrefixIndex(4)
    for row in (2, 3):
        index.credit(row, False)
    for row in range(4):
        index.set_capacity(row, 1000)
    for i in range(100):
        prompt = range(100 * i, 100 * i + 8)
        for row in range(4):
            index.sent(row, prompt)
            index.stored(row, prompt)
    assert [index.resident(row) for row in range(4)] == [800, 800, 0, 0]
    index.credit(0, False)
    assert index.resident(0) == 0
    index.credit(2, True)
    index.stored(2, range(5))
    assert index.resident(2) == 5


class Turns:
    """A multi-turn trace served by caches that keep real time out: each turn is sent where most of it is held."""

    def __init__(self, routers: int, events: bool) -> None:
        self.events = events
        self.caches = [KvCache(4_000, 16) for _ in range(REPLICAS)]
        for cache in self.caches:
            cache.use_segments(16)
        self.indexes = [PrefixIndex(REPLICAS) for _ in range(routers)]
        for index in self.indexes:
            for row in range(REPLICAS):
                index.set_capacity(row, 4_000)

    def serve(self, router: int, prompt: tuple[int, ...], fallback: int) -> tuple[int, int]:
        """Predicted and real hit in blocks."""
        index = self.indexes[router]
        held = index.matched_blocks(prompt)
        row = int(held.argmax()) if held.any() else fallback
        predicted, cache = int(held[row]), self.caches[row]
        real = cache.match(prompt, len(prompt))
        cache.acquire(prompt, real)
        cache.take(len(prompt) - real)
        cache.commit(prompt, real, len(prompt))
        cache.release(prompt, len(prompt))
        changed = cache.collect()
        if not self.events:
            index.sent(row, prompt)
        elif changed is not None:
            for each in self.indexes:
                each.stored(row, changed[0])
                each.removed(row, changed[1])
        return predicted, real


def hit_share(routers: int, events: bool, route: Callable[[int, int], int]) -> tuple[float, int]:
    """Share of prompt blocks that were hits, and the sum of |predicted − real| over all requests."""
    rng = np.random.default_rng(3)
    world = Turns(routers, events)
    sessions = [tuple(rng.integers(1, 2**60, 20).tolist()) for _ in range(60)]
    hits = asked = error = 0
    for turn in range(600):
        session = int(rng.integers(60))
        sessions[session] += tuple(rng.integers(1, 2**60, 4).tolist())
        prompt = sessions[session]
        predicted, real = world.serve(route(turn, session), prompt, int(rng.integers(REPLICAS)))
        hits, asked, error = hits + real, asked + len(prompt), error + abs(predicted - real)
    return hits / asked, error


def test_several_routers_share_what_engines_publish_f033() -> None:
    """F033: with events three routers predict like one; without, a loss that partition by session avoids."""
    one, error = hit_share(1, True, lambda turn, session: 0)
    three, error_of_three = hit_share(3, True, lambda turn, session: turn % 3)
    assert (three, error_of_three) == (one, 0)
    assert error == 0
    guess_one, _ = hit_share(1, False, lambda turn, session: 0)
    guess_three, _ = hit_share(3, False, lambda turn, session: turn % 3)
    parted, _ = hit_share(3, False, lambda turn, session: session % 3)
    assert guess_one > one - 0.02
    assert parted > guess_one - 0.02
    assert guess_one > guess_three > guess_one / 3


def test_a_restarted_router_predicts_well_again_f027() -> None:
    """F027: killed in the middle and cold, it makes no error, and within 300 requests predicts as before."""
    rng = np.random.default_rng(5)
    world = Turns(1, True)
    sessions = [tuple(rng.integers(1, 2**60, 10).tolist()) for _ in range(40)]
    errors = []
    for turn in range(900):
        if turn == 300:
            world.indexes[0] = PrefixIndex(REPLICAS)
        session = int(rng.integers(40))
        if turn % 20 == 0:
            sessions[session] = tuple(rng.integers(1, 2**60, 10).tolist())
        sessions[session] = (*sessions[session][:30], *rng.integers(1, 2**60, 1).tolist())
        predicted, real = world.serve(0, sessions[session], int(rng.integers(REPLICAS)))
        errors.append(abs(predicted - real))
    assert sum(errors[:300]) == 0
    assert sum(errors[300:400]) > 0
    assert sum(errors[600:]) <= 0.05 * sum(errors[300:600]) + 30


def test_a_prompt_that_cannot_be_hashed_still_spreads_f037() -> None:
    """F037: no token ids, no hashes: no hit anywhere, and the choice is not always the first endpoint."""
    table = EndpointTable([spec(number) for number in range(4)])
    index = PrefixIndex(4)
    index.stored(0, hash_tokens(range(400), Scope("m@1")))  # type: ignore[arg-type]
    policy = TokenPilot(TokenPilotSettings(), PolicyContext(table, 0))
    view = view_of(table, index)
    chosen = np.bincount([policy.choose(request_of(i, ()), np.arange(4), view) for i in range(500)], minlength=4)
    assert (view.hit_tokens(request_of(0, ())) == 0).all()
    assert (np.abs(chosen - 125) <= 3 * np.sqrt(500 * 0.25 * 0.75)).all(), chosen


@pytest.mark.slow
def test_five_million_unique_prefixes_stay_within_the_cap_f023() -> None:
    """F023: 5 million unique prefixes: entries stay under the cap, memory is flat once it is reached."""
    index = PrefixIndex(64, PrefixIndexSettings(max_bytes=6 << 20))
    rng = np.random.default_rng(0)
    resident, most = [], 0
    for turn in range(5_000_000):
        if turn % 5_000 == 0:
            pool = rng.integers(0, 2**64, 100_000, dtype=np.uint64)
        start = 20 * (turn % 5_000)
        index.stored(turn % 64, pool[start : start + 20])
        if turn % 100_000 == 0:
            most = max(most, len(index))
            resident.append(_resident_pages())
    assert most <= index.max_entries <= 220_000
    assert max(resident[5:]) <= 1.1 * min(resident[5:])
    assert index.evictions > 0


def _resident_pages() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])
