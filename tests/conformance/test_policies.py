"""One list of checks that every registered policy passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from data.catalog.types import ServiceTimes
from data.fleet.types import Fleet, Model, Site, Tenant
from data.types import IntArray, Outcome, RefusalReason, Slo, Status
from router.endpoints import EndpointSpec, EndpointTable
from router.filters import FilterRules, eligible, refusal_reason
from router.leases import LeaseBook
from router.policies.active_blocks import ActiveBlocks
from router.policies.ledger import Ledger
from router.prefix import EventPrefixIndex
from router.registry import POLICIES, make_policy
from router.reports import apply_reports
from router.types import FleetView, Policy, RouteRequest

EACH = pytest.mark.parametrize("name", list(POLICIES))
TIMES = ServiceTimes(p0=0.01, p1=5e-5, p2=1e-9, d0=0.008, d1=5e-5, d2=1e-8)
BLOCK = 256


def specs(n: int) -> list[EndpointSpec]:
    return [
        EndpointSpec(f"B/c/{i}", "B", "m@1", "c", "H100", 1, TIMES, 200_000, 8192, 256, 131_072) for i in range(n)
    ]


def request_of(request_id: int, blocks: tuple[int, ...] = (), tokens: int = 2048) -> RouteRequest:
    return RouteRequest(
        request_id=request_id,
        model="m@1",
        tenant="t",
        workload_class="interactive",
        origin="A",
        input_tokens=len(blocks) * BLOCK or tokens,
        output_budget=400,
        expected_output_tokens=150.0,
        block_hashes=blocks,
        block_tokens=BLOCK,
        session_id="",
        slo=Slo(ttft_s=2.0, tpot_s=0.05),
    )


def outcome_of(request: RouteRequest, endpoint: int, status: Status, now_s: float, ttft_s: float) -> Outcome:
    return Outcome(
        request_id=request.request_id,
        attempt=request.attempt,
        status=status,
        workload_class=request.workload_class,
        tenant=request.tenant,
        endpoint=endpoint,
        arrival_s=now_s - 3.0,
        finished_s=now_s,
        ttft_s=ttft_s,
        e2e_s=3.0,
        input_tokens=request.input_tokens,
        cached_tokens=0,
        output_tokens=100,
    )


@dataclass
class World:
    """Endpoints, their accounting and their prefix index, around one policy."""

    name: str
    n: int = 4
    seed: int = 1
    order: list[int] | None = None
    now_s: float = 0.0
    running: list[tuple[RouteRequest, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        order = self.order or list(range(self.n))
        self.table = EndpointTable([specs(self.n)[i] for i in order])
        self.index = EventPrefixIndex(self.n)
        self.book = LeaseBook(self.table)
        self.policy: Policy = make_policy(self.name, {}, self.table, self.seed)
        self.everybody: IntArray = np.arange(self.n)

    @property
    def view(self) -> FleetView:
        return FleetView(self.now_s, self.table, self.index, np.zeros(self.n))

    def choose(self, request: RouteRequest, candidates: IntArray | None = None) -> int:
        return self.policy.choose(request, self.everybody if candidates is None else candidates, self.view)

    def dispatch(self, request: RouteRequest, endpoint: int) -> None:
        hit = float(self.view.hit_tokens(request)[endpoint])
        lease = self.book.open(request, endpoint, hit, self.now_s)
        self.policy.dispatched(request, endpoint, self.view)
        self.running.append((request, endpoint, lease))

    def end(self, place: int, status: Status = Status.COMPLETED, first_token: bool = True) -> None:
        request, endpoint, lease = self.running.pop(place)
        if first_token:
            self.book.first_token(lease, self.now_s)
            self.policy.first_token(request, endpoint, self.now_s, 0.5)
        self.book.close(lease, self.now_s, status)
        self.policy.finished(
            request, outcome_of(request, endpoint, status, self.now_s, 0.5 if first_token else float("nan"))
        )

    def serve(self, request: RouteRequest, candidates: IntArray | None = None) -> int:
        endpoint = self.choose(request, candidates)
        self.dispatch(request, endpoint)
        return endpoint

    def report(self, rng: np.random.Generator) -> None:
        values = [rng.permutation(self.n).astype(float) for _ in range(3)]
        apply_reports(self.table, self.book, self.everybody, self.now_s, values[0], values[1], values[2] / self.n)


def prompts(rng: np.random.Generator, n: int) -> Iterator[RouteRequest]:
    """Requests with shared and unshared prefixes of many lengths, some without any hash."""
    bases = [tuple(rng.integers(1, 2**62, 12).tolist()) for _ in range(5)]
    for i in range(n):
        base = bases[int(rng.integers(5))][: int(rng.integers(0, 13))]
        yield request_of(i, base + tuple(rng.integers(1, 2**62, int(rng.integers(0, 4))).tolist()))


def mixed_run(world: World, seed: int, n: int = 300) -> list[int]:
    """Requests, reports, cache events, narrowed candidates and every kind of end, at random."""
    rng = np.random.default_rng(seed)
    chosen = []
    for request in prompts(rng, n):
        world.now_s += float(rng.exponential(0.05))
        candidates = np.sort(rng.choice(world.n, int(rng.integers(1, world.n + 1)), replace=False))
        chosen.append(world.serve(request, candidates))
        assert chosen[-1] in candidates
        if rng.random() < 0.5:
            world.index.stored(chosen[-1], request.block_hashes)
        if rng.random() < 0.1:
            world.report(rng)
        while len(world.running) > 12:
            place = int(rng.integers(len(world.running)))
            world.end(place, Status(int(rng.integers(len(Status)))), bool(rng.random() < 0.7))
    return chosen


@EACH
def test_the_choice_is_a_candidate_and_the_table_is_only_read(name: str) -> None:
    world = World(name, n=6)
    mixed_run(world, seed=3)
    columns = [value for value in vars(world.table).values() if isinstance(value, np.ndarray)]
    for column in (*columns, world.everybody):
        column.flags.writeable = False
    for request in prompts(np.random.default_rng(4), 50):
        assert world.choose(request) in range(6)


@EACH
@pytest.mark.parametrize("blocks", [(), (7,), tuple(range(1, 60))], ids=["no prefix", "one block", "long"])
def test_one_endpoint_takes_everything(name: str, blocks: tuple[int, ...]) -> None:
    world = World(name)
    world.index.stored(2, (1, 2, 3))
    for i in range(5):
        assert world.serve(request_of(i, blocks), np.array([2])) == 2


@EACH
def test_ties_and_no_information_spread_evenly_f009_f037(name: str) -> None:
    """F009, F037: no report, no prefix, equal load: each of 4 gets 1/4 of 1,000 within 3 standard deviations."""
    world = World(name)
    chosen: Counter[int] = Counter()
    for i in range(1000):
        world.now_s += 0.1
        chosen[world.serve(request_of(i))] += 1
        world.end(0)
    if POLICIES[name].ties == "first_index":
        assert chosen == {0: 1000}, f"exempt: {POLICIES[name].ties_note}"
    else:
        bound = 3 * np.sqrt(1000 * 0.25 * 0.75)
        assert all(abs(chosen[row] - 250) <= bound for row in range(4)), chosen


@EACH
def test_nothing_is_chosen_when_all_are_unhealthy(name: str) -> None:
    world = World(name)
    fleet = Fleet(
        "f", (Site("B", "compute", "z"),), (), (), (Model("m", "1", "x", 131_072),), (), (), (Tenant("t"),)
    )
    rules = FilterRules(fleet, world.table)
    world.table.healthy[:] = False
    request = request_of(0)
    assert not len(eligible(request, world.table, rules))
    assert refusal_reason(request, world.table, rules) is RefusalReason.ALL_UNHEALTHY
    world.table.healthy[3] = True
    assert world.choose(request, eligible(request, world.table, rules)) == 3


def distinct_world(name: str, order: list[int]) -> World:
    """Endpoints that differ in everything a rule may look at; ``order`` says which one each row is."""
    n = len(order)
    world = World(name, n=n, order=order)
    row_of = {endpoint: row for row, endpoint in enumerate(order)}
    rng = np.random.default_rng(5)
    for endpoint in range(n):
        for k in range(endpoint + 1):
            blocks = tuple(rng.integers(1, 2**62, 3 + 2 * k).tolist())
            request = request_of(1000 * endpoint + k, blocks)
            world.now_s += 0.01
            world.dispatch(request, row_of[endpoint])
            world.policy.first_token(request_of(10**6 + k), row_of[endpoint], world.now_s, 0.1 * (endpoint + 3))
        world.index.stored(row_of[endpoint], tuple(range(1, 2 * endpoint + 2)))
    values = np.array(order, dtype=float)
    world.now_s += 0.01
    apply_reports(world.table, world.book, world.everybody, world.now_s, values, 9 - values, values / 10)
    return world


@EACH
def test_the_order_of_rows_does_not_matter(name: str) -> None:
    orders = ([0, 1, 2, 3, 4], [3, 0, 4, 2, 1])
    probes = [request_of(50_000 + i, tuple(range(1, 2 + i))) for i in range(12)]
    # Rules that draw are compared by how often each endpoint is chosen, the others by the choice itself.
    drawn = POLICIES[name].ties in ("draw", "rotating")
    repeats, bound = (800, 4 * np.sqrt(800 / 2)) if drawn else (1, 0)
    answers = []
    for order in orders:
        world = distinct_world(name, order)
        answers.append(
            [
                Counter(order[world.choose(probe)] for _ in range(repeats))
                for probe in (probes[::4] if drawn else probes)
            ]
        )
    for one, other in zip(*answers, strict=True):
        for endpoint in range(5):
            assert abs(one[endpoint] - other[endpoint]) <= bound


@EACH
def test_rows_that_are_no_candidates_never_matter_f005(name: str) -> None:
    """F005: whatever an unhealthy endpoint shows, the choice among the healthy ones is the same."""
    choices = []
    for load, use, held in ((0.0, 0.0, 0), (5000.0, 1.0, 0), (7.0, float("nan"), 40)):
        world = World(name, n=5)
        rng = np.random.default_rng(6)
        world.report(rng)
        world.table.healthy[4] = False
        world.table.inflight[4] = world.table.decoding[4] = load
        world.table.running[4] = world.table.waiting[4] = load
        world.table.kv_use[4] = use
        world.index.stored(4, tuple(range(1, held + 1)))
        world.index.stored(1, (1, 2, 3))
        taken = []
        for i in range(200):
            world.now_s += 0.05
            taken.append(world.serve(request_of(i, tuple(range(1, 2 + i % 9))), np.arange(4)))
            if len(world.running) > 10:
                world.end(0)
        choices.append(taken)
    assert choices[0] == choices[1] == choices[2]


@EACH
def test_the_same_seed_gives_the_same_sequence_f009(name: str) -> None:
    """F009: a run can be repeated to the choice."""
    first, again = (mixed_run(World(name, n=6, seed=11), seed=7) for _ in range(2))
    assert first == again


@EACH
def test_everything_charged_is_released_f012(name: str) -> None:
    """F012: after 1,000 requests with every kind of end no counter of table or policy is left."""
    world = World(name)
    mixed_run(world, seed=8, n=1000)
    while world.running:
        world.end(0, Status.FAILED, first_token=False)
    table = world.table
    for column in (table.inflight, table.inflight_uncached_tokens, table.inflight_tokens, table.decoding):
        assert not column.any()
    assert not table.sent_since_report.any()
    for attribute, value in vars(world.policy).items():
        if isinstance(value, Ledger | ActiveBlocks):
            assert len(value) == 0, attribute
            assert not value.total.any(), attribute
        if isinstance(value, dict):
            assert not [key for key in value if isinstance(key, tuple)], f"{attribute} keeps ended requests"


@EACH
def test_a_reset_endpoint_is_like_new_f021_f025(name: str) -> None:
    """F021, F025: after all endpoints came back empty a policy decides like one that has just started."""
    used, fresh = World(name), World(name)
    for request in prompts(np.random.default_rng(9), 60):
        used.dispatch(replace(request, request_id=request.request_id + 10_000), request.request_id % 3)
        used.policy.first_token(request, request.request_id % 3, 0.0, 0.3)
    for row in range(4):
        used.index.cleared(row)
        used.book.drop_endpoint(row)
        used.policy.endpoint_reset(row)
    # Ends that arrive late belong to the old incarnation.
    while used.running:
        used.end(0, Status.FAILED, first_token=False)
    assert served(used) == served(fresh)


def served(world: World) -> list[int]:
    chosen = []
    for request in prompts(np.random.default_rng(9), 200):
        world.now_s += 0.1
        chosen.append(world.serve(request))
        if len(world.running) > 8:
            world.end(0)
    return chosen


LONGER: list[tuple[str, Callable[[], tuple[int, ...]]]] = [
    ("longer than any cached", lambda: tuple(range(1, 101))),
    ("shorter than the cached", lambda: (1, 2)),
    ("unknown", lambda: tuple(range(5000, 5010))),
]


@EACH
@pytest.mark.parametrize(("_label", "blocks"), LONGER, ids=[label for label, _ in LONGER])
def test_prompts_of_any_length_are_served(name: str, _label: str, blocks: Callable[[], tuple[int, ...]]) -> None:
    world = World(name)
    world.index.stored(1, tuple(range(1, 11)))
    world.dispatch(request_of(0, tuple(range(1, 11))), 1)
    for i in range(1, 20):
        assert world.serve(request_of(i, blocks())) in range(4)
