"""The shield: a prefill waits until the answers in progress can bear it."""

from __future__ import annotations

from typing import Any

import pytest

from data.errors import SettingError
from data.fleet.types import Tenant
from router.slomax.settings import SloMaxSettings

TARGET_S, STEP_S = 0.05, 0.01
"""TPOT target of the class and decode step of an engine of the fleet by hand, near enough."""
GOLD = Tenant("gold", tier="guaranteed")
OPEN = {"pace": False, "backlog_s": 10.0, "reserve": 0.0, "demote": False, "floor_share": 0.0, "shield": 1.0}
"""Nothing but the shield holds anybody back."""


def one_answer(hand: Any, tenant: str = "t", replicas: int = 1, **settings: Any) -> Any:
    """An interactive answer of ``tenant`` that begins at 0 on engine 0."""
    world = hand("slomax", OPEN | settings, replicas=replicas, tenants=(Tenant("t"), GOLD))
    world.offer(world.request(0, tokens=1, tenant=tenant), 0.0)
    world.first_token(0, 0.0)
    return world


def sent_at(world: Any, request: int, until_s: float = 3.0) -> float:
    """When a waiting request goes, asked every 10 ms; the engine reports nothing."""
    for tick in range(int(until_s / 0.01)):
        world.pump(tick * 0.01)
        found = [at_s for at_s, sent, _ in world.sent if sent == request]
        if found:
            return float(found[0])
    return until_s


@pytest.mark.parametrize("prefill_s", [0.35, 0.5, 0.8])
def test_a_prefill_waits_until_an_answer_may_end_and_keep_its_target(hand: Any, prefill_s: float) -> None:
    """After ``t`` an answer has had ``t / step`` gaps; with the next one it has ``t + step + prefill`` at most."""
    world = one_answer(hand)
    world.offer(world.request(1, "long_context", tokens=int(prefill_s / 1e-4)), 0.0)
    waited_s = sent_at(world, 1)
    assert waited_s == pytest.approx((prefill_s - TARGET_S + STEP_S) / (TARGET_S / STEP_S - 1.0), abs=0.02)


def test_a_short_prefill_waits_for_the_guaranteed_tier_alone(hand: Any) -> None:
    """Where all prompts are short, waiting for everybody's answers would cost more than it saves."""
    world = one_answer(hand)
    world.offer(world.request(1, tokens=2900), 0.0)
    assert sent_at(world, 1) == 0.0
    world = one_answer(hand, tenant="gold")
    world.offer(world.request(1, tokens=2900), 0.0)
    assert sent_at(world, 1) > 0.05


def test_it_goes_at_once_where_no_answer_has_a_target_or_the_shield_is_off(hand: Any) -> None:
    world = one_answer(hand, shield=0.0)
    world.offer(world.request(1, "long_context", tokens=8000), 0.0)
    assert sent_at(world, 1) == 0.0
    world = hand("slomax", OPEN, replicas=1)
    world.offer(world.request(0, "batch", tokens=1), 0.0)
    world.first_token(0, 0.0)
    world.offer(world.request(1, "long_context", tokens=8000), 0.0)
    assert sent_at(world, 1) == 0.0


def test_it_goes_to_the_engine_whose_answers_can_bear_it(hand: Any) -> None:
    """One engine's answer is old, the other's has just begun."""
    world = one_answer(hand, replicas=2)
    world.offer(world.request(1, tokens=1), 1.0)
    world.first_token(1, 1.0)
    assert [row for _, _, row in world.sent] == [0, 1]
    world.offer(world.request(2, "long_context", tokens=20_000), 1.0)
    assert world.sent[-1][1:] == (2, 0)


def test_what_was_sent_is_taken_from_the_slack_and_a_new_answer_has_none(hand: Any) -> None:
    world = one_answer(hand)
    world.pump(1.0)  # saves about four seconds
    world.offer(world.request(1, "batch", tokens=20_000), 1.0)  # two of them are used
    world.offer(world.request(2, "batch", tokens=30_000), 1.0)
    assert [request for _, request, _ in world.sent] == [0, 1]
    world.first_token(1, 1.3)
    world.pump(1.6)
    assert world.sent[-1][1] == 2
    world.first_token(2, 4.6)
    world.offer(world.request(3, tokens=1), 20.0)
    world.first_token(3, 25.0)
    world.offer(world.request(4, "batch", tokens=5000), 25.0)
    assert world.waiting() == 1


def test_the_end_of_the_answers_ends_the_shield(hand: Any) -> None:
    world = one_answer(hand)
    world.offer(world.request(1, "batch", tokens=20_000), 0.0)
    assert world.waiting() == 1
    world.finish(0, 0.01)
    assert world.waiting() == 0


def test_the_guaranteed_tier_passes_over_the_slack_of_others_and_keeps_its_own(hand: Any) -> None:
    world = one_answer(hand)
    world.offer(world.request(1, tokens=3000, tenant="gold"), 0.0)
    assert world.sent[-1][1] == 1
    world = one_answer(hand, tenant="gold")
    world.offer(world.request(1, tokens=3000, tenant="gold"), 0.0)
    assert world.sent[-1][1] == 0


def test_answers_of_the_guaranteed_tier_are_left_more(hand: Any) -> None:
    waits = []
    for tenant in ("t", "gold"):
        world = one_answer(hand, tenant)
        world.offer(world.request(1, "long_context", tokens=8000), 0.0)
        waits.append(sent_at(world, 1))
    assert 1.3 * waits[0] < waits[1] < 2.0


def test_a_guaranteed_request_near_its_latest_start_does_not_wait_for_the_shield(hand: Any) -> None:
    """Two seconds of prefill and a target of five: it goes after 2.5 s, though an answer has just begun."""
    world = one_answer(hand, tenant="gold")
    world.offer(world.request(1, "long_context", tokens=20_000, tenant="gold"), 0.0)
    for request in range(2, 40):  # a new answer every 0.1 s keeps the slack at next to nothing
        world.pump(request * 0.1)
        if world.sent[-1][1] == 1:
            break
        world.offer(world.request(request, tokens=1, tenant="gold"), request * 0.1)
        world.first_token(request, request * 0.1)
    assert [at_s for at_s, sent, _ in world.sent if sent == 1] == [pytest.approx(2.5, abs=0.11)]


def test_a_floor_is_kept_through_the_shield_where_the_slack_is_greatest(hand: Any) -> None:
    """Batch has earned its turn: it goes to the engine whose answer is older, though neither can bear it."""
    world = one_answer(hand, replicas=2, floor_share=0.2)
    world.offer(world.request(1, tokens=1), 0.1)
    world.first_token(1, 0.1)
    world.offer(world.request(2, "batch", tokens=8000), 0.1)
    for request in range(3, 400):
        now_s = 0.1 + request * 1e-5
        world.offer(world.request(request, tokens=1), now_s)
        assert world.sent[-1][2] == 0 or world.sent[-1][1] == 2
        if world.sent[-1][1] == 2:
            break
        world.first_token(request, now_s)
        world.finish(request, now_s)
    assert [row for _, sent, row in world.sent if sent == 2] == [1]


def test_another_engine_in_the_row_has_no_answers(hand: Any) -> None:
    world = one_answer(hand)
    world.offer(world.request(1, "batch", tokens=20_000), 0.0)
    world.flow.endpoint_reset(0)
    world.pump(0.0)
    assert world.waiting() == 0


def test_the_shield_is_a_share() -> None:
    with pytest.raises(SettingError, match="shield"):
        SloMaxSettings(shield=1.5)
