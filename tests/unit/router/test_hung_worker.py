"""One of eight workers hangs: how much of the throughput is kept, in a closed loop on a simulated clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np
import pytest

from router.endpoints import EndpointTable
from router.feeds.breaker import Ending, Phase
from router.feeds.health import HealthBook

WORKERS, CLIENTS, GIVE_UP_S, HALF_S = 8, 16, 2.0, 4.0
TTFT_S, REST_S, P99_S = 0.03, 0.07, 0.1


class ClosedLoop:
    """Clients that ask again as soon as they have an answer; least requests in flight among healthy workers.

    ``move`` = callers look at their silent requests every 50 ms and move those that ``rescue`` allows.
    """

    def __init__(self, table: EndpointTable, seed: int, move: bool, tracked: bool = True) -> None:
        self.health = HealthBook(table)
        self.table, self.move, self.tracked = table, move, tracked
        self.rng = np.random.default_rng(seed)
        self.inflight = np.zeros(WORKERS)
        self.hung: int | None = None
        self.events: list[tuple[float, int, str, int, int]] = []
        self.done: list[float] = []
        self.open: dict[int, int] = {}
        self.to_hung: list[float] = []
        self.lease = 0
        for client in range(CLIENTS):
            self.push(0.001 * client, "ask", client, 0)
        self.push(0.05, "look", 0, 0)

    def push(self, at_s: float, what: str, client: int, lease: int) -> None:
        heapq.heappush(self.events, (at_s, len(self.events) + self.lease, what, client, lease))

    def run(self, until_s: float) -> None:
        while self.events[0][0] < until_s:
            now_s, _, what, client, lease = heapq.heappop(self.events)
            getattr(self, what)(now_s, client, lease)

    def ask(self, now_s: float, client: int, _lease: int) -> None:
        self.health.refresh(now_s)
        rows = np.arange(WORKERS)
        if self.tracked:
            rows = self.health.prefer_heard(np.flatnonzero(self.table.healthy))
        least = rows[self.inflight[rows] == self.inflight[rows].min()]
        row = int(self.rng.choice(least))
        self.lease += 1
        lease = self.lease
        self.open[lease] = row
        self.inflight[row] += 1
        self.health.dispatched(lease, row, now_s, P99_S)
        if row == self.hung:
            self.to_hung.append(now_s)
        else:
            self.push(now_s + TTFT_S * self.rng.uniform(0.5, 1.5), "token", client, lease)
        self.push(now_s + GIVE_UP_S, "give_up", client, lease)

    def token(self, now_s: float, client: int, lease: int) -> None:
        self.health.first_token(lease, now_s)
        self.push(now_s + REST_S * self.rng.uniform(0.5, 1.5), "complete", client, lease)

    def complete(self, now_s: float, client: int, lease: int) -> None:
        self.end(now_s, client, lease, Ending.COMPLETED)
        self.done.append(now_s)

    def give_up(self, now_s: float, client: int, lease: int) -> None:
        if lease in self.open:
            self.end(now_s, client, lease, Ending.TIMEOUT)

    def look(self, now_s: float, _client: int, _lease: int) -> None:
        self.health.refresh(now_s)
        clients = {lease: client for _, _, what, client, lease in self.events if what == "give_up"}
        for lease in self.health.silent_leases() if self.move else []:
            if self.health.rescue(lease):
                self.end(now_s, clients[lease], lease, Ending.CANCELLED)
        self.push(now_s + 0.05, "look", 0, 0)

    def end(self, now_s: float, client: int, lease: int, ending: Ending) -> None:
        self.inflight[self.open.pop(lease)] -= 1
        self.health.finished(lease, ending, now_s)
        self.push(now_s, "ask", client, 0)

    def kept(self) -> float:
        """Throughput of the half with the fault over that of the half without."""
        self.run(1.0 + HALF_S)
        self.hung = 3
        self.run(1.0 + 2 * HALF_S)
        before = sum(1.0 <= at < 1.0 + HALF_S for at in self.done)
        return sum(at >= 1.0 + HALF_S for at in self.done) / before


@pytest.mark.parametrize("seed", range(5))
def test_throughput_is_kept_when_callers_move_silent_requests(
    make_table: Callable[..., EndpointTable], seed: int
) -> None:
    loop = ClosedLoop(make_table(WORKERS), seed, move=True)
    assert loop.kept() >= 0.95
    assert loop.health.phase(3) is Phase.OPEN
    assert loop.health.rescued == len(loop.to_hung)


@pytest.mark.parametrize("seed", range(5))
def test_only_what_was_sent_before_the_silence_showed_is_lost_otherwise(
    make_table: Callable[..., EndpointTable], seed: int
) -> None:
    """Clients that sit out their time-out: two or three of sixteen are caught once, and never again."""
    loop = ClosedLoop(make_table(WORKERS), seed, move=False)
    assert loop.kept() >= 0.88
    assert len(loop.to_hung) <= 3
    assert max(loop.to_hung) <= 1.0 + HALF_S + 0.5


def test_without_the_clock_the_hung_worker_draws_request_after_request(
    make_table: Callable[..., EndpointTable],
) -> None:
    """The control: the same loop that ignores health goes on sending there."""
    loop = ClosedLoop(make_table(WORKERS), 0, move=False, tracked=False)
    assert loop.kept() < 0.90
    assert len(loop.to_hung) > 3


@pytest.mark.parametrize("seed", range(3))
def test_a_worker_that_comes_back_is_found_and_trusted_again(
    make_table: Callable[..., EndpointTable], seed: int
) -> None:
    """F064: first contact is one probe, and traffic ramps up instead of jumping."""
    loop = ClosedLoop(make_table(WORKERS), seed, move=True)
    loop.kept()
    loop.hung = None
    loop.run(12.0)
    assert loop.health.phase(3) is Phase.CLOSED
    assert loop.table.healthy.all()
