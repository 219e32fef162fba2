"""States of endpoints by their load reports, on a clock that is an argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from data.errors import SettingError
from router.endpoints import EndpointTable
from router.engines.aliases import Reading
from router.feeds.endpoint_state import EndpointStates, ReportState, StateChange, StateSettings, kv_capacity
from router.leases import LeaseBook
from router.registry import make_policy
from router.types import FleetView, RouteRequest

GOOD = {"running": 1.0, "waiting": 0.0, "kv_use": 0.2}


def reading(missing: tuple[str, ...] = (), **values: float) -> Reading:
    told = {name: value for name, value in {**GOOD, **values}.items() if name not in missing}
    return Reading(told, missing, 0)


class World:
    """A table, its book and its states, with what they told."""

    def __init__(self, table: EndpointTable, settings: StateSettings | None = None) -> None:
        self.table, self.book = table, LeaseBook(table)
        self.sent = [0] * len(table)
        self.changes: list[StateChange] = []
        self.restarted: list[int] = []
        self.states = EndpointStates(
            table, self.book, self.sent, self.restart, self.changes.append, settings or StateSettings()
        )

    def restart(self, row: int) -> None:
        self.restarted.append(row)
        self.book.drop_endpoint(row)

    def send(self, request: RouteRequest, row: int, now_s: float) -> int:
        self.sent[row] += 1
        return self.book.open(request, row, 0.0, now_s)


@pytest.fixture
def make_world(make_table: Callable[..., EndpointTable]) -> Callable[..., World]:
    return lambda n, settings=None: World(make_table(n), settings)


def test_the_five_states_are_told_apart(make_world: Callable[..., World]) -> None:
    world = make_world(5, StateSettings(frozen_pages=2, frozen_requests=1))
    states = world.states
    states.page(1, reading(), 10.0)
    states.page(2, reading(), 8.0)
    states.page(3, reading(missing=("waiting",)), 10.0)
    states.page(4, reading(), 9.7)
    world.sent[4] += 1
    states.page(4, reading(), 10.0)
    found = [states.state(row, 10.1) for row in range(5)]
    assert found == [
        ReportState.NEVER_SEEN,
        ReportState.FRESH,
        ReportState.STALE,
        ReportState.MISSING,
        ReportState.FROZEN,
    ]
    assert states.fresh(np.arange(5), 10.1).tolist() == [False, True, False, False, False]
    assert states.counts(np.arange(5), 10.1) == dict.fromkeys(ReportState, 1)


def test_stale_ranks_below_fresh_and_all_stale_still_serves(
    make_world: Callable[..., World], make_request: Callable[..., RouteRequest]
) -> None:
    """F001: the example of the case."""
    world = make_world(2, StateSettings(stale_after_s=0.5))
    states, rows = world.states, np.arange(2)
    states.page(0, reading(running=3.0), 0.0)
    states.page(1, reading(running=1.0, waiting=9.0), 0.2)
    for row, count in ((0, 3), (1, 1)):
        for _ in range(count):
            world.send(make_request(), row, 0.0)
    policy = make_policy("least_request", {}, world.table, 1)

    def choose(now_s: float) -> tuple[int, bool]:
        left, degraded = states.prefer_fresh(rows, now_s)
        return policy.choose(make_request(), left, FleetView(now_s, world.table, _none(2), np.zeros(2))), degraded

    assert choose(4.1) == (1, True)
    states.page(0, reading(running=3.0), 3.98)
    assert choose(4.1) == (0, False)


def test_one_endpoint_that_is_stale_is_not_full(make_world: Callable[..., World]) -> None:
    """F001: a delay of the scraper leaves a pool of one endpoint at work."""
    world = make_world(1)
    world.states.page(0, reading(), 0.0)
    rows, degraded = world.states.prefer_fresh(np.arange(1), 30.0)
    assert (rows.tolist(), degraded) == ([0], True)


def test_fresh_endpoints_that_are_full_do_not_shut_the_others_out(
    make_world: Callable[..., World], make_request: Callable[..., RouteRequest]
) -> None:
    """F001: one fresh endpoint among many must not take the load of all."""
    world = make_world(3)
    world.states.page(0, reading(), 10.0)
    world.table.inflight[0] = world.table.max_seqs[0]
    rows, degraded = world.states.prefer_fresh(np.arange(3), 10.0)
    assert (rows.tolist(), degraded) == ([0, 1, 2], True)


def test_the_first_endpoint_to_be_seen_is_not_sent_everything(
    make_world: Callable[..., World], make_request: Callable[..., RouteRequest]
) -> None:
    """F001, F009: at the start, when pages come one by one, the lead of the first is bounded."""
    world = make_world(4)
    world.states.page(2, reading(), 10.0)
    policy = make_policy("least_request", {}, world.table, 1)
    for number in range(80):
        left, _ = world.states.prefer_fresh(np.arange(4), 10.0)
        view = FleetView(10.0, world.table, _none(4), np.zeros(4))
        world.send(make_request(number), policy.choose(make_request(number), left, view), 10.0)
    assert world.table.inflight.max() <= world.table.inflight.min() + 8


def test_a_constant_page_under_traffic_is_frozen_and_its_report_ages(
    make_world: Callable[..., World], make_request: Callable[..., RouteRequest]
) -> None:
    """F010: fifty requests and never another number."""
    world = make_world(2)
    for number in range(8):
        for _ in range(7):
            world.send(make_request(), 0, 0.25 * number)
        for row in (0, 1):
            world.states.page(row, reading(), 0.25 * number + 0.1)
    assert world.states.state(0, 1.9) is ReportState.FROZEN
    assert world.states.state(1, 1.9) is ReportState.FRESH, "nothing was sent there"
    assert world.changes == [StateChange(0, "frozen", "8 pages")]
    world.states.page(0, reading(), 2.1)
    assert world.table.reported_at_s[0] == pytest.approx(0.25 * 6 + 0.1), "the last report that was believed"
    world.states.page(0, reading(running=2.0), 2.35)
    assert world.states.state(0, 2.4) is ReportState.FRESH
    assert world.changes[-1] == StateChange(0, "recovered", "frozen")


def test_a_moving_counter_shows_that_the_page_is_alive(make_world: Callable[..., World]) -> None:
    """F010: a queue that stands still while tokens come is measured."""
    world = make_world(1)
    for number in range(20):
        world.sent[0] += 10
        world.states.page(0, reading(generation_tokens=100.0 * number), 0.25 * number)
    assert world.states.state(0, 4.8) is ReportState.FRESH


def test_a_missing_series_is_alerted_once_by_name_and_what_is_there_is_used(
    make_world: Callable[..., World],
) -> None:
    """F015: kv_use 0.97 counts, waiting is missing, and the endpoint is not preferred over a busy one."""
    world = make_world(2)
    for number in range(4):
        world.states.page(0, reading(missing=("waiting",), kv_use=0.97, running=41.0), 0.25 * number)
        world.states.page(1, reading(waiting=1.0, kv_use=0.40), 0.25 * number)
    assert world.changes == [StateChange(0, "missing", "waiting")]
    assert world.table.kv_use[0] == 0.97
    assert np.isnan(world.table.waiting[0])
    rows, degraded = world.states.prefer_fresh(np.arange(2), 0.8)
    assert (rows.tolist(), degraded) == ([1], False)
    world.states.page(0, reading(), 1.0)
    assert world.changes[-1] == StateChange(0, "recovered", "missing")


def test_reports_keep_what_was_sent_after_their_sample(
    make_world: Callable[..., World], make_request: Callable[..., RouteRequest]
) -> None:
    """F008: by way of pages, to the number."""
    world = make_world(2)
    world.send(make_request(), 0, 10.0)
    for row in (0, 1):
        world.states.page(row, reading(running=0.0), 0.0)
    assert world.table.sent_since_report.tolist() == [1, 0]
    world.states.page(0, reading(running=1.0), 20.0)
    assert world.table.sent_since_report.tolist() == [0, 0]
    assert world.table.inflight.tolist() == [1, 0]


def test_pages_never_lower_what_is_in_flight(
    make_world: Callable[..., World], make_request: Callable[..., RouteRequest]
) -> None:
    """F004: five open requests stay five through idle, broken and late pages."""
    world = make_world(1)
    for _ in range(5):
        world.send(make_request(), 0, 1.0)
    pages = [reading(running=0.0), reading(missing=("running", "waiting", "kv_use")), reading(kv_use=0.0)]
    for number, page in enumerate(pages):
        world.states.page(0, page, 2.0 + number)
    world.states.page(0, reading(), 0.5)
    assert world.table.inflight[0] == 5
    assert world.table.reported_at_s[0] == 4.0


@pytest.mark.parametrize(
    ("before", "after", "how"),
    [
        ({"started_at_s": 1000.0}, {"started_at_s": 2000.0}, "process started"),
        ({"generation_tokens": 500.0}, {"generation_tokens": 3.0}, "generation_tokens fell"),
        ({"prompt_tokens": 500.0}, {"prompt_tokens": 499.0}, "prompt_tokens fell"),
    ],
)
def test_a_restart_behind_the_same_address_starts_empty(
    make_world: Callable[..., World],
    make_request: Callable[..., RouteRequest],
    before: dict[str, float],
    after: dict[str, float],
    how: str,
) -> None:
    """F021, F025: leases, reports and states of the old incarnation go together, before its page is used."""
    world = make_world(2)
    lease = world.send(make_request(), 0, 1.0)
    world.states.page(0, reading(**before), 2.0)
    world.states.page(0, reading(running=0.0, **after), 3.0)
    assert world.restarted == [0]
    assert how in world.changes[-1].detail
    assert world.table.inflight[0] == 0
    assert world.table.running[0] == 0
    world.book.close(lease, 4.0)
    assert world.table.inflight[0] == 0
    world.states.page(0, reading(running=0.0, **after), 4.0)
    assert world.restarted == [0], "told once"


def test_counters_that_are_absent_for_a_page_are_no_restart(make_world: Callable[..., World]) -> None:
    """Zero, missing and reset are three different things."""
    world = make_world(1)
    for number, told in enumerate(({"prompt_tokens": 9.0}, {}, {"prompt_tokens": 9.0}, {"started_at_s": 5.0}, {})):
        world.states.page(0, reading(**told), float(number))
    assert world.restarted == []


def test_rows_can_be_reset_and_grow(
    make_world: Callable[..., World], make_table: Callable[..., EndpointTable]
) -> None:
    world = make_world(1)
    world.states.page(0, reading(kv_blocks=10.0, block_tokens=16.0), 1.0)
    assert world.states.kv_tokens.tolist() == [160.0]
    world.states.reset(0)
    assert world.states.state(0, 1.1) is ReportState.NEVER_SEEN
    spec = world.table.specs[0]
    world.table.grow(3)
    world.table.put(2, replace(spec, endpoint_id="B/c/new"))
    world.book.resized()
    world.sent += [0, 0]
    world.states.resized()
    world.states.page(2, reading(kv_tokens=99.0), 2.0)
    assert world.states.state(2, 2.1) is ReportState.FRESH
    assert kv_capacity(world.states.kv_tokens, world.table.kv_capacity_tokens).tolist()[2] == 99.0


@pytest.mark.parametrize(
    "wrong", [{"stale_after_s": 0.0}, {"frozen_pages": 1}, {"frozen_requests": 0}, {"fresh_lead": 0}]
)
def test_settings_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingError, match=next(iter(wrong))):
        StateSettings(**wrong)  # type: ignore[arg-type]


def _none(n: int):  # type: ignore[no-untyped-def]
    from router.prefix import EventPrefixIndex

    return EventPrefixIndex(n)
