"""Laws of pages, sends and ends in any order."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from data.catalog.types import ServiceTimes
from data.types import Slo
from router.endpoints import EndpointSpec, EndpointTable
from router.engines.aliases import Reading
from router.feeds.endpoint_state import EndpointStates, ReportState
from router.leases import LeaseBook
from router.types import RouteRequest

TIMES = ServiceTimes(p0=0.01, p1=5e-5, p2=1e-9, d0=0.008, d1=5e-5, d2=1e-8)
ROWS = 3
LOAD = st.one_of(st.none(), st.integers(0, 40).map(float))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, ROWS - 1)),
        st.tuples(st.just("end"), st.integers(0, 20)),
        st.tuples(st.just("wait"), st.floats(0.0, 1.5)),
        st.tuples(st.just("page"), st.integers(0, ROWS - 1), st.floats(0.0, 0.3), LOAD, LOAD, LOAD),
    ),
    max_size=60,
)


def request(number: int) -> RouteRequest:
    return RouteRequest(number, "m@1", "t", "interactive", "A", 2048, 400, 150.0, (), 512, "", Slo())


class World:
    """A table under a random history, and a plain account of what was sent."""

    def __init__(self) -> None:
        names = [f"B/c/{i}" for i in range(ROWS)]
        self.table = EndpointTable(
            [EndpointSpec(n, "B", "m@1", "c", "H100", 1, TIMES, 200_000, 8192, 256, 131_072) for n in names]
        )
        self.book = LeaseBook(self.table)
        self.sent = [0] * ROWS
        self.restarts = 0
        self.states = EndpointStates(self.table, self.book, self.sent, self.restart, lambda _: None)
        self.open: dict[int, tuple[int, float]] = {}
        self.newest = [float("-inf")] * ROWS
        self.now_s = 100.0

    def restart(self, row: int) -> None:
        self.restarts += 1

    def play(self, steps: list[tuple[object, ...]]) -> None:
        for what, *rest in steps:
            self.now_s += 0.001
            getattr(self, f"do_{what}")(*rest)

    def do_send(self, row: int) -> None:
        self.sent[row] += 1
        self.open[self.book.open(request(self.sent[row]), row, 0.0, self.now_s)] = (row, self.now_s)

    def do_end(self, which: int) -> None:
        if self.open:
            lease = sorted(self.open)[which % len(self.open)]
            del self.open[lease]
            self.book.close(lease, self.now_s)

    def do_wait(self, seconds: float) -> None:
        self.now_s += seconds

    def do_page(self, row: int, delay_s: float, *load: float | None) -> None:
        told = {k: v for k, v in zip(("running", "waiting", "kv_use"), load, strict=True) if v is not None}
        missing = tuple(k for k in ("running", "waiting", "kv_use") if k not in told)
        asked_s = self.now_s - delay_s
        self.states.page(row, Reading(told, missing, 0), asked_s)
        self.newest[row] = max(self.newest[row], asked_s)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_pages_never_change_what_is_in_flight(steps: list[tuple[object, ...]]) -> None:
    """F004, F008, F012: local counts follow sends and ends alone; what was sent after a sample stays counted."""
    world = World()
    world.play(steps)
    table = world.table
    for row in range(ROWS):
        leases = [at for where, at in world.open.values() if where == row]
        assert table.inflight[row] == len(leases)
        since = table.reported_at_s[row]
        assert table.sent_since_report[row] == sum(not at <= since for at in leases)
    for lease in list(world.open):
        world.book.close(lease, world.now_s)
    assert not table.inflight.any()
    assert not table.sent_since_report.any()
    assert world.restarts == 0


@settings(max_examples=150, deadline=None)
@given(STEPS, st.floats(0.0, 3.0))
def test_states_agree_with_ages_and_the_answer_is_never_empty(
    steps: list[tuple[object, ...]], later_s: float
) -> None:
    """F001: some endpoint is always left to choose, whatever is known of them."""
    world = World()
    world.play(steps)
    now_s, states = world.now_s + later_s, world.states
    rows = np.arange(ROWS)
    for row in range(ROWS):
        state = states.state(row, now_s)
        assert (state is ReportState.NEVER_SEEN) == (world.newest[row] == float("-inf"))
        if now_s - world.newest[row] > states.settings.stale_after_s:
            assert state in (ReportState.NEVER_SEEN, ReportState.STALE)
    left, degraded = states.prefer_fresh(rows, now_s)
    assert len(left)
    fresh = states.fresh(rows, now_s)
    assert left.tolist() == (rows if degraded or fresh.all() else rows[fresh]).tolist()
    behind = world.table.inflight[rows[~fresh]].min(initial=np.inf) + states.settings.fresh_lead
    assert degraded == (not fresh.all() and not (world.table.inflight[rows[fresh]] < behind).any())
