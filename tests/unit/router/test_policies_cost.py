"""Event-fed, cost-based and predicting policies: each rule pinned by small examples worked by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from data.types import Outcome, Slo, Status
from models.base import CategoryCodes, FeatureMatrix, Prediction
from models.features import INDEX
from router.endpoints import EndpointTable
from router.policies.active_blocks import ActiveBlocks
from router.policies.ledger import Ledger
from router.policies.prefill_time import peak_prefill_tokens_per_s, prefill_time_s
from router.policies.speculative_blocks import SpeculativeBlocks
from router.prefix import EventPrefixIndex
from router.registry import make_policy
from router.types import FleetView, RouteRequest

Tables = Callable[..., EndpointTable]
Requests = Callable[..., RouteRequest]
Views = Callable[..., FleetView]
Outcomes = Callable[..., Outcome]
PROMPT = tuple(range(1, 11))


def index_of(held: dict[int, int], n: int) -> EventPrefixIndex:
    """Endpoints that hold so many leading blocks of ``PROMPT``."""
    index = EventPrefixIndex(n)
    for endpoint, blocks in held.items():
        index.stored(endpoint, PROMPT[:blocks])
    return index


# vllm-router kv_aware


def test_kv_aware_takes_the_most_blocks_whatever_the_load(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    table = make_table(4)
    table.inflight[:] = [0, 99, 98, 1]
    view = make_view(table, prefixes=index_of({0: 4, 1: 6, 2: 6}, 4))
    policy = make_policy("kv_aware_vllm_router", {}, table, 0)
    assert policy.choose(make_request(block_hashes=PROMPT), np.arange(4), view) == 2
    assert policy.choose(make_request(block_hashes=(77, 78)), np.arange(4), view) == 0


def test_kv_aware_keeps_a_burst_together_for_two_seconds(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    table = make_table(3)
    policy = make_policy("kv_aware_vllm_router", {}, table, 0)
    request = make_request(block_hashes=PROMPT)
    policy.dispatched(request, 2, make_view(table, now_s=10.0))
    table.inflight[:] = [0, 0, 1]
    assert policy.choose(request, np.arange(3), make_view(table, now_s=11.9)) == 2
    assert policy.choose(request, np.arange(3), make_view(table, now_s=12.0)) == 0


def test_speculative_blocks_sent_again_stay_longer() -> None:
    blocks = SpeculativeBlocks(2, 2.0)
    blocks.add(0, (1, 2, 3), 0.0)
    blocks.add(0, (1, 2, 9), 1.0)
    assert blocks.matched((1, 2, 3), 1.9).tolist() == [3, 0]
    assert blocks.matched((1, 2, 3), 2.5).tolist() == [2, 0]
    assert blocks.matched((1, 2, 9), 3.0).tolist() == [0, 0]
    assert len(blocks) == 0
    blocks.add(1, (5,), 4.0)
    blocks.reset(1)
    assert len(blocks) == 0
    assert blocks.matched((5,), 4.1).tolist() == [0, 0]


# Mooncake and GORGO: p0 = 0.01 s, p1 = 1e-4 s/token


def test_prefill_time_of_several_steps(make_table: Tables) -> None:
    """10,000 tokens at a budget of 8,192 are two steps: 2 · 0.01 + 10,000 · 1e-4 = 1.02 s."""
    table = make_table(1)
    rows = np.array([0])
    assert prefill_time_s(table, rows, np.array([10_000.0]), np.array([0.0]))[0] == pytest.approx(1.02)
    assert prefill_time_s(table, rows, np.array([0.0]), np.array([500.0]))[0] == 0.0
    table.p2[:] = 1e-8
    # 0.01 + 1000 · (1e-4 + 1e-8 · (2000 + 500))
    assert prefill_time_s(table, rows, np.array([1000.0]), np.array([2000.0]))[0] == pytest.approx(0.135)
    table.p2[:] = 0.0
    assert peak_prefill_tokens_per_s(table)[0] == pytest.approx(8192 / (0.01 + 0.8192))


def test_mooncake_weighs_queue_against_prefill(
    make_table: Tables, make_request: Requests, make_view: Views, make_outcome: Outcomes
) -> None:
    """A hit of 500 tokens is worth 0.05 s; a queued prompt of 400 costs 0.05 s, one of 600 costs 0.07 s."""
    table = make_table(2)
    view = make_view(table, prefixes=index_of({0: 5}, 2))
    policy = make_policy("mooncake_no_transfer", {}, table, 0)
    request = make_request(99, block_hashes=PROMPT)
    rows = np.arange(2)
    assert policy.choose(request, rows, view) == 0
    queued = make_request(1, input_tokens=600)
    policy.dispatched(queued, 0, view)
    assert policy.choose(request, rows, view) == 1
    policy.first_token(queued, 0, 1.0, 1.0)
    assert policy.choose(request, rows, view) == 0
    policy.finished(queued, make_outcome(queued, 0))
    policy.dispatched(make_request(2, input_tokens=300), 0, view)
    assert policy.choose(request, rows, view) == 0


def test_mooncake_tells_half_a_millisecond_apart(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    table = make_table(2)
    table.p0[:] = [0.0105, 0.0100]
    policy = make_policy("mooncake_no_transfer", {}, table, 0)
    assert {policy.choose(make_request(), np.arange(2), make_view(table)) for _ in range(40)} == {1}


def test_a_ledger_holds_one_amount_an_attempt(make_request: Requests) -> None:
    ledger = Ledger(2)
    first, retry = make_request(1), make_request(1, attempt=1)
    ledger.charge(first, 0, 0.1)
    ledger.charge(first, 1, 0.2)
    ledger.charge(retry, 1, 0.7)
    assert ledger.total.tolist() == [0.0, pytest.approx(0.9)]
    ledger.release(first)
    ledger.release(first)
    assert ledger.total.tolist() == [0.0, pytest.approx(0.7)]
    ledger.reset(1)
    ledger.release(retry)
    assert ledger.total.tolist() == [0.0, 0.0]
    assert len(ledger) == 0


def test_mooncake_knows_the_gpu(make_table: Tables, make_request: Requests, make_view: Views) -> None:
    table = make_table(2)
    table.p1[:] = [3e-4, 1e-4]
    policy = make_policy("mooncake_no_transfer", {}, table, 0)
    view = make_view(table)
    assert policy.choose(make_request(), np.arange(2), view) == 1
    policy.dispatched(make_request(1, input_tokens=1900), 1, view)
    # The fast one needs 0.20 + 0.02 queued and 0.11 of its own, the slow one 0.31 and nothing is queued.
    policy.dispatched(make_request(2, input_tokens=100), 1, view)
    assert policy.choose(make_request(), np.arange(2), view) == 0


@pytest.mark.parametrize(("rtt_weight", "chosen"), [(1.0, 0), (0.5, 1)])
def test_gorgo_adds_the_round_trip(
    make_table: Tables, make_request: Requests, make_view: Views, rtt_weight: float, chosen: int
) -> None:
    """The far replica saves 0.05 s of prefill and costs 0.08 s of network."""
    table = make_table(2)
    view = make_view(table, prefixes=index_of({1: 5}, 2), rtt_s=[0.0, 0.08])
    policy = make_policy("rtt_aware_gorgo", {"rtt_weight": rtt_weight}, table, 0)
    assert policy.choose(make_request(block_hashes=PROMPT), np.arange(2), view) == chosen


# Dynamo


def test_dynamo_formula(make_table: Tables, make_request: Requests, make_view: Views) -> None:
    """Prompt of 10 blocks. Endpoint 0: overlap 6, 12 decode blocks in use; endpoint 1: empty.

    Cost 0 = s·(10 − 6) + 12 + 10, cost 1 = s·10 + 0 + 10: equal at scale 2.
    """
    table = make_table(2)
    view = make_view(table, prefixes=index_of({0: 6}, 2))
    request = make_request(99, block_hashes=PROMPT)
    busy = make_request(1, input_tokens=1200, block_hashes=tuple(range(500, 512)))
    for scale, chosen in ((1.9, {1}), (2.0, {0, 1}), (2.1, {0})):
        policy = make_policy("kv_cost_dynamo", {"scale": scale}, table, 0)
        policy.dispatched(busy, 0, view)
        policy.first_token(busy, 0, 1.0, 1.0)
        assert {policy.choose(request, np.arange(2), view) for _ in range(40)} == chosen


def test_dynamo_adds_only_blocks_that_are_not_in_use(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    """The prompt's own ten blocks in use at 0: 10 + 0 there, 0 + 10 at 1."""
    table = make_table(2)
    view = make_view(table)
    policy = make_policy("kv_cost_dynamo", {}, table, 0)
    running = make_request(1, block_hashes=PROMPT)
    policy.dispatched(running, 0, view)
    policy.first_token(running, 0, 1.0, 1.0)
    again = make_request(2, block_hashes=PROMPT)
    assert {policy.choose(again, np.arange(2), view) for _ in range(40)} == {0, 1}
    other = make_request(3, block_hashes=tuple(range(300, 310)))
    assert {policy.choose(other, np.arange(2), view) for _ in range(40)} == {1}


def test_dynamo_counts_active_prefill_and_never_below_zero(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    """1,500 uncached tokens being prefilled at 0 are 15 blocks; the overlap of 10 leaves 15 of 25."""
    table = make_table(2)
    view = make_view(table, prefixes=index_of({0: 10}, 2))
    request = make_request(99, block_hashes=PROMPT)
    policy = make_policy("kv_cost_dynamo", {"scale": 16.0}, table, 0)
    assert policy.choose(request, np.arange(2), view) == 0
    policy.dispatched(make_request(1, input_tokens=1500), 0, view)
    assert policy.choose(request, np.arange(2), view) == 1
    generous = make_policy("kv_cost_dynamo", {"scale": 1.0, "overlap_credit": 3.0}, table, 0)
    # 0 prefill + 11 decode at 0 against 10 prefill + 0 decode at 1: a clamp at zero keeps 0 dearer.
    generous.dispatched(make_request(2, block_hashes=tuple(range(600, 611)), input_tokens=1), 0, view)
    assert generous.choose(request, np.arange(2), view) == 1


def test_dynamo_charges_requests_if_asked(make_table: Tables, make_request: Requests, make_view: Views) -> None:
    table = make_table(2)
    table.inflight[:] = [5, 0]
    view = make_view(table, prefixes=index_of({0: 4}, 2))
    request = make_request(block_hashes=PROMPT)
    for weight, chosen in ((0.5, 0), (1.0, 1)):
        policy = make_policy("kv_cost_dynamo", {"request_weight": weight}, table, 0)
        assert policy.choose(request, np.arange(2), view) == chosen


def test_active_blocks_count_shared_ones_once(make_request: Requests) -> None:
    blocks = ActiveBlocks(2)
    first = make_request(1, block_hashes=(1, 2, 3))
    second = make_request(2, block_hashes=(1, 2, 9, 10))
    blank = make_request(3, input_tokens=250)
    for request in (first, second, blank):
        blocks.enter(request, 0)
    assert blocks.total.tolist() == [5 + 3, 0]
    assert blocks.added(make_request(4, block_hashes=(1, 2, 9, 77))).tolist() == [1, 4]
    blocks.leave(first)
    assert blocks.total.tolist() == [4 + 3, 0]
    blocks.leave(first)
    blocks.leave(second)
    blocks.leave(blank)
    assert blocks.total.tolist() == [0, 0]
    blocks.enter(first, 1)
    blocks.reset(1)
    blocks.leave(first)
    assert blocks.total.tolist() == [0, 0]
    assert len(blocks) == 0


# llm-d


def test_weighted_blend_sums_three_scores(make_table: Tables, make_request: Requests, make_view: Views) -> None:
    """Scores: 0: 2·1 + 2·0.5 = 3; 1: 2·0 + 2·1 + 3·0.5 = 3.5; 2: 2·0.5 + 2·0.9 = 2.8."""
    table = make_table(3)
    table.waiting[:] = [0, 4, 2]
    table.kv_use[:] = [0.5, 0.0, 0.1]
    view = make_view(table)
    policy = make_policy("weighted_blend_llmd", {}, table, 0)
    policy.dispatched(make_request(block_hashes=PROMPT[:5]), 1, view)
    request = make_request(block_hashes=PROMPT)
    assert policy.choose(request, np.arange(3), view) == 1
    no_prefix = make_policy("weighted_blend_llmd", {"prefix_weight": 0.0}, table, 0)
    assert no_prefix.choose(request, np.arange(3), view) == 0


def test_weighted_blend_does_not_add_own_dispatches(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    table = make_table(2)
    table.waiting[:] = [0, 1]
    table.kv_use[:] = [0.1, 0.1]
    table.inflight[:] = [500, 0]
    policy = make_policy("weighted_blend_llmd", {}, table, 0)
    assert policy.choose(make_request(), np.arange(2), make_view(table)) == 0


def test_weighted_blend_sends_cold_prompts_to_the_least_recently_used(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    table = make_table(3)
    view = make_view(table)
    policy = make_policy("weighted_blend_llmd", {"no_hit_lru_weight": 2.0}, table, 0)
    for i, endpoint in enumerate((1, 0, 2, 1)):
        policy.dispatched(make_request(block_hashes=(1000 + i,)), endpoint, view)
    assert policy.choose(make_request(block_hashes=(5000,)), np.arange(3), view) == 0


def test_weighted_blend_index_is_sized_to_the_engine(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    """A KV capacity of 500 tokens is five blocks of 100."""
    table = make_table(2, kv_capacity_tokens=500)
    view = make_view(table)
    policy = make_policy("weighted_blend_llmd", {}, table, 0)
    policy.dispatched(make_request(block_hashes=PROMPT[:5]), 1, view)
    request = make_request(block_hashes=PROMPT[:5], input_tokens=500)
    assert policy.choose(request, np.arange(2), view) == 1
    policy.dispatched(make_request(block_hashes=tuple(range(70, 75))), 1, view)
    chosen = {policy.choose(request, np.arange(2), view) for _ in range(40)}
    assert chosen == {0, 1}


def test_sticky_until_the_holder_has_too_much_work(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    """Peak rate 8192/0.8292 = 9,879 tokens/s; with 1 s tolerated the holder is left above 9,879 tokens."""
    table = make_table(3)
    view = make_view(table)
    policy = make_policy("sticky_until_saturated_llmd", {"penalty_s": 1.0}, table, 0)
    first = make_request(1, block_hashes=PROMPT)
    policy.dispatched(first, 1, view)
    follow_up = make_request(50, block_hashes=PROMPT)
    policy.dispatched(make_request(2, input_tokens=8800), 1, view)
    assert policy.choose(follow_up, np.arange(3), view) == 1
    policy.dispatched(make_request(3, input_tokens=80), 1, view)
    assert policy.choose(follow_up, np.arange(3), view) != 1
    policy.first_token(first, 1, 1.0, 1.0)
    assert policy.choose(follow_up, np.arange(3), view) == 1


def test_sticky_needs_four_fifths_of_the_prompt(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    """Nothing but load speaks: a match of 70 % saves 700 tokens against 900 in flight."""
    table = make_table(2)
    view = make_view(table)
    for blocks, chosen in ((7, 0), (8, 1)):
        policy = make_policy("sticky_until_saturated_llmd", {}, table, 0)
        policy.dispatched(make_request(1, block_hashes=PROMPT[:blocks], input_tokens=900), 1, view)
        assert policy.choose(make_request(50, block_hashes=PROMPT), np.arange(2), view) == chosen


def test_sticky_bound_by_decode_counts_requests(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    table = make_table(2)
    table.inflight[:] = [3, 2]
    policy = make_policy("sticky_until_saturated_llmd", {"bound": "decode"}, table, 0)
    policy.dispatched(make_request(1, input_tokens=5000), 1, make_view(table))
    assert policy.choose(make_request(2), np.arange(2), make_view(table)) == 1


class Fixed:
    """A predictor that says what it was told for each GPU code."""

    version = "fixed"
    codes = CategoryCodes(gpu_types=("H100",), models=("m@1",))

    def __init__(self, ttft_s: list[float], tpot_s: list[float]) -> None:
        self.ttft_s, self.tpot_s = np.array(ttft_s), np.array(tpot_s)

    def predict(self, features: FeatureMatrix) -> Prediction:
        # The endpoints of these tests differ in their KV capacity: 100,000 + row.
        rows = (features[:, INDEX["kv_capacity_tokens"]] - 100_000).astype(int)
        ttft, tpot = self.ttft_s[rows, None], self.tpot_s[rows, None]
        return Prediction((0.5, 0.9), ttft * [1.0, 9.0], tpot * [1.0, 9.0], self.version)


def numbered(make_table: Tables, n: int) -> EndpointTable:
    table = make_table(n)
    specs = [
        type(spec)(
            **{
                **{name: getattr(spec, name) for name in spec.__slots__},
                "kv_capacity_tokens": 100_000 + row,
            }
        )
        for row, spec in enumerate(table.specs)
    ]
    return EndpointTable(specs)


def test_predicted_latency_prefers_the_tightest_safe_fit(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    """Targets 2 s and 0.05 s: endpoints 0 and 1 are safe, 1 has the least headroom, 2 misses."""
    table = numbered(make_table, 3)
    fixed = Fixed([0.2, 1.8, 2.5], [0.01, 0.04, 0.01])
    policy = make_policy("predicted_latency_llmd", {}, table, 0, fixed)
    chosen = Counter(policy.choose(make_request(), np.arange(3), make_view(table)) for _ in range(4000))
    assert chosen[1] / 4000 == pytest.approx(0.99 * 1.02 / 1.04, abs=0.01)
    assert chosen[2] / 4000 == pytest.approx(0.01, abs=0.006)
    strict = make_policy("predicted_latency_llmd", {"exploration": 0.0}, table, 0, fixed)
    assert 2 not in {strict.choose(make_request(), np.arange(3), make_view(table)) for _ in range(500)}
    spread = make_policy("predicted_latency_llmd", {"headroom": "most", "exploration": 0.0}, table, 0, fixed)
    chosen = Counter(spread.choose(make_request(), np.arange(3), make_view(table)) for _ in range(1000))
    assert chosen[0] / 1000 == pytest.approx(1.02 / 1.04, abs=0.02)


def test_predicted_latency_scales_headroom_once(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    """Equal TTFTs count half each; TPOT then moves the weights from 0.62 to 0.42 and no further."""
    table = numbered(make_table, 2)
    policy = make_policy("predicted_latency_llmd", {}, table, 0, Fixed([0.5, 0.5], [0.04, 0.01]))
    chosen = Counter(policy.choose(make_request(), np.arange(2), make_view(table)) for _ in range(4000))
    assert chosen[0] / 4000 == pytest.approx(0.62 / 1.04, abs=0.03)


def test_predicted_latency_counts_only_what_is_missed(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    """Both miss the TPOT target equally and keep that of TTFT: the room left there says nothing."""
    table = numbered(make_table, 2)
    table.inflight[:] = 1
    policy = make_policy("predicted_latency_llmd", {}, table, 0, Fixed([0.1, 1.9], [0.08, 0.08]))
    chosen = Counter(policy.choose(make_request(), np.arange(2), make_view(table)) for _ in range(4000))
    assert chosen[0] / 4000 == pytest.approx(0.5, abs=0.03)


def test_predicted_latency_without_targets_takes_idle_then_smallest_miss(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    table = numbered(make_table, 3)
    policy = make_policy("predicted_latency_llmd", {}, table, 0, Fixed([0.1, 0.5, 0.9], [0.01, 0.02, 0.03]))
    request = make_request(slo=Slo())
    table.inflight[:] = [1, 0, 0]
    chosen = Counter(policy.choose(request, np.arange(3), make_view(table)) for _ in range(1000))
    assert chosen[0] == 0
    assert chosen[1] > 950
    table.inflight[:] = 1
    chosen = Counter(policy.choose(request, np.arange(3), make_view(table)) for _ in range(1000))
    assert chosen[0] > chosen[1] > chosen[2]


@pytest.mark.parametrize("held_blocks", [10, 8])
@pytest.mark.parametrize(("slower_s", "sticky"), [(4.9, True), (5.1, False)])
def test_predicted_latency_gate_opens_when_the_match_is_much_slower(
    make_table: Tables,
    make_request: Requests,
    make_view: Views,
    slower_s: float,
    sticky: bool,
    held_blocks: int,
) -> None:
    """A match of the whole prompt passes the first gate, one of 80 % the second."""
    table = numbered(make_table, 3)
    table.inflight[:] = 1
    # The others fit more tightly in TPOT, so only the gate speaks for the holder.
    fixed = Fixed([0.1, 0.1 + slower_s, 0.1], [0.9, 0.1, 0.9])
    policy = make_policy("predicted_latency_llmd", {"ttft_weight": 0.0, "tpot_weight": 1.0}, table, 0, fixed)
    view = make_view(table)
    request = make_request(block_hashes=PROMPT, slo=Slo(ttft_s=20.0, tpot_s=1.0))
    policy.dispatched(make_request(1, block_hashes=PROMPT[:held_blocks]), 1, view)
    chosen = Counter(policy.choose(request, np.arange(3), view) for _ in range(200))
    assert chosen[1] == 200 if sticky else chosen[1] < 20


def test_predicted_latency_works_on_the_prior(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    table = make_table(2)
    table.inflight[0] = 40
    table.inflight_uncached_tokens[0] = 60_000
    table.waiting_prefill_s[0] = 6.0
    table.prefill_since_s[0] = 0.0
    policy = make_policy("predicted_latency_llmd", {"exploration": 0.0}, table, 0)
    request = make_request(slo=Slo(ttft_s=1.0, tpot_s=0.5))
    assert {policy.choose(request, np.arange(2), make_view(table)) for _ in range(100)} == {1}


def test_a_lost_first_token_still_releases_work(
    make_table: Tables, make_request: Requests, make_view: Views, make_outcome: Outcomes
) -> None:
    """F012: work charged to an endpoint is released when the request ends without a first token."""
    table = make_table(2)
    view = make_view(table)
    for name in ("mooncake_no_transfer", "sticky_until_saturated_llmd", "kv_cost_dynamo"):
        policy = make_policy(name, {}, table, 0)
        request = make_request(1, input_tokens=9000)
        policy.dispatched(request, 0, view)
        assert {policy.choose(make_request(2), np.arange(2), view) for _ in range(30)} == {1}
        policy.finished(request, make_outcome(request, 0, Status.CANCELLED, ttft_s=float("nan")))
        assert {policy.choose(make_request(2), np.arange(2), view) for _ in range(30)} == {0, 1}
