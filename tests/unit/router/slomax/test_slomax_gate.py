"""The gate: what an engine can take, own dispatches included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from data.errors import SettingError
from data.fleet.types import Reservation, Tenant
from router.slomax.settings import SloMaxSettings
from router.slomax.types import Queued, Ready


def test_f051_an_endpoint_over_its_ceiling_is_no_candidate(hand: Any) -> None:
    """F051: of loads 12, 11, 10 and 3 with limits of 10 the next six requests all go to the fourth."""
    world = hand("slomax", {"pace": False}, replicas=4, max_seqs=10)
    world.table.inflight[:] = (12, 11, 10, 3)
    verdicts = [world.offer(world.request(i, tokens=10), 0.0) for i in range(8)]
    assert [row for _, _, row in world.sent] == [3] * 7
    assert isinstance(verdicts[7], Queued)


def test_nothing_is_sent_twice_into_the_gap_between_two_reports(hand: Any) -> None:
    """An old report says that the engines are idle; own dispatches close the gate all the same."""
    world = hand("slomax", {"backlog_s": 0.25, "pace": False}, replicas=2)
    world.table.reported_at_s[:] = 0.0
    world.table.running[:] = world.table.waiting[:] = world.table.kv_use[:] = 0.0
    for i in range(20):
        world.offer(world.request(i, tokens=1000), 0.0)  # 0.1 s of prefill each
    assert len(world.sent) == 2 * 3
    assert world.waiting() == 14
    world.first_token(0, 0.1)  # one is done, and as much time has passed for the other engine
    assert len(world.sent) == 2 * 4


@pytest.mark.parametrize("saturation", [0.0, 0.1, 0.3, 0.5, 0.8, 0.99, 1.0, 1.5])
@pytest.mark.parametrize("waiting", [("interactive",), ("long_context",), ("batch",), ("interactive", "batch")])
def test_f045_ceilings_fall_from_class_to_class_and_are_kept_both_ways(
    hand: Any, saturation: float, waiting: tuple[str, ...]
) -> None:
    """F045: nobody starts at or above the class's ceiling; below it, with no tighter class waiting, one does."""
    ceilings = {"interactive": 1.0, "long_context": 0.5, "batch": 0.25}
    settings = {"backlog_s": 0.4, "ceiling_step": 0.5, "pace": False, "demote": False, "reserve": 0.0}
    world = hand("slomax", settings, replicas=1)
    world.table.inflight[0] = 1
    world.table.waiting_prefill_s[0] = 0.4 * saturation
    world.table.inflight_uncached_tokens[0] = 100.0
    world.table.prefill_since_s[0] = 0.0
    for i, kind in enumerate(waiting):
        world.offer(world.request(i, kind, tokens=10), 0.0)
    started = [waiting[request] for _, request, _ in world.sent]
    first = waiting[0]
    assert (first in started) == (saturation < ceilings[first])
    assert all(saturation < ceilings[kind] for kind in started)


def test_f045_ceilings_that_rise_are_refused() -> None:
    """F045: a step above 1 would let looser classes in where tighter ones may not."""
    with pytest.raises(SettingError, match="ceiling_step"):
        SloMaxSettings(ceiling_step=1.1)


def test_one_long_prefill_at_a_time_and_some_replicas_without_any(hand: Any) -> None:
    world = hand("slomax", {"reserve": 0.5, "pace": False}, replicas=4)
    for i in range(6):
        world.offer(world.request(i, "long_context", tokens=10_000), 0.0)  # one second of prefill each
    assert len(world.sent) == 2
    assert len({row for _, _, row in world.sent}) == 2
    world.offer(world.request(10), 0.0)
    assert world.sent[-1][1] == 10
    assert world.sent[-1][2] not in {row for _, _, row in world.sent[:2]}
    world.first_token(0, 1.0)
    assert len(world.sent) == 4


def test_a_hung_engine_does_not_look_idle(hand: Any) -> None:
    world = hand("slomax", {"pace": False}, replicas=2)
    world.offer(world.request(0, tokens=1000), 0.0)
    hung = world.sent[0][2]
    for i in range(1, 9):  # the other one answers every second, this one never
        world.offer(world.request(i, "batch", tokens=100), float(i))
        assert world.sent[-1][2] != hung
        world.first_token(i, i + 0.1)
        world.finish(i, i + 0.5)


def test_prefill_leaves_decode_its_time(hand: Any) -> None:
    """With a step of 10 ms and a target of 50 ms at most four fifths of the time go to prefill."""
    settings = {"tpot_margin": 1.0, "pace_burst_s": 0.1, "backlog_s": 10.0}
    world = hand("slomax", settings, replicas=1)
    now_s, prefill = 0.0, 0.0
    world.offer(world.request(0, tokens=10), 0.0)
    for i in range(1, 400):
        now_s = i * 0.05
        world.offer(world.request(i, tokens=1000), now_s)
        for request in [one for one in world.running if one]:
            world.first_token(request, now_s)
            world.finish(request, now_s)
    prefill = sum(0.1 for _, request, _ in world.sent if request)
    assert prefill / now_s == pytest.approx(0.8, abs=0.05)


def test_the_gate_follows_a_table_that_grows(hand: Any) -> None:
    world = hand("slomax", {"pace": False}, replicas=1, max_seqs=1)
    world.offer(world.request(0), 0.0)
    assert isinstance(world.offer(world.request(1, "batch"), 0.0), Queued)
    world.table.grow(2)
    world.table.put(1, replace(world.table.specs[0], endpoint_id="1"))
    world.open = np.arange(2)
    ready = world.flow.next(0.0)
    assert isinstance(ready, Ready)
    assert (ready.request.request_id, ready.rows.tolist()) == (1, [1])


def test_kv_memory_is_not_overfilled(hand: Any) -> None:
    world = hand("slomax", {"pace": False, "backlog_s": 1e6}, replicas=1, kv_capacity_tokens=10_000)
    for i in range(20):
        world.offer(world.request(i, "batch", tokens=2000), 0.0)
    assert len(world.sent) == 5
    assert float(world.table.inflight_tokens[0]) >= 0.95 * 10_000


@pytest.mark.parametrize("promise", ["none", "guarantee", "floor"])
def test_what_was_promised_is_held_back_by_no_lower_ceiling(hand: Any, promise: str) -> None:
    """With 0.2 s of backlog batch may not go, unless its tenant's guarantee or its floor says so."""
    rates = (Reservation("m@1", tokens_per_s=100.0),) if promise == "guarantee" else ()
    settings = {"backlog_s": 0.4, "ceiling_step": 0.5, "pace": False, "reserve": 0.0}
    floor = {"floor_share": 0.2} if promise == "floor" else {"floor_share": 0.0}
    world = hand("slomax", settings | floor, replicas=1, tenants=(Tenant("t", reservations=rates), Tenant("u")))
    table = world.table
    table.inflight[0], table.waiting_prefill_s[0] = 1, 0.2
    table.inflight_uncached_tokens[0], table.prefill_since_s[0] = 100.0, 0.0
    assert isinstance(world.offer(world.request(0, "batch", tokens=10, output_budget=1), 0.0), Queued)
    for i in range(1, 9):
        table.waiting_prefill_s[0] = 0.2
        world.offer(world.request(i, "interactive", tokens=10, tenant="u"), 0.0)
    sent = [request for _, request, _ in world.sent]
    assert sent.count(0) == (promise != "none")
    assert len(sent) >= 8
