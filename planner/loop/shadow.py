"""Two plans on the same requests: the one in force, and the candidate with the moves that lead to it.

The candidate starts from what stands. Its moves begin in their order: new replicas load and have cold caches,
those it gives up drain; so it has to earn what its moves cost. Where the window is shorter than the period that
a plan is for, load times and moments are shortened in the same ratio: a move has the whole period to repay
them. Drains take as long as their requests, so a shortened clock does not let starts wait for their GPUs; at
full length they do. Both runs of a seed see the same arrivals, lengths and noise (common random numbers).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from data.catalog.load import Catalog
from data.fleet.types import Fleet, Placed
from data.plan import Move
from data.types import Request
from planner.plan_execution import PlanExecution, change_execution
from planner.sim.run import simulate
from planner.sim.settings import SimSettings
from router.endpoints import EndpointTable
from router.registry import make_policy

DRAIN_S = 120.0
"""Time after the last arrival in which answers still count: a short window ends before its answers do."""
MOST_REPLICAS = 20_000
"""Larger fleets are not simulated: memory and time would outgrow a step."""


@dataclass(frozen=True, slots=True)
class Shadow:
    """Simulated Goodput of both, means over seeds, output tokens/s.

    Attributes:
        running: Of what stands.
        candidate: Of the candidate, its moves included.
        requests: Requests of one run.
        window_s: Length of the window.
        seeds: Runs of each.
        source: Where the requests come from, for people.
    """

    running: float
    candidate: float
    requests: int
    window_s: float
    seeds: int
    source: str

    @property
    def loss(self) -> float:
        """Share of the running plan's Goodput that the candidate loses (below 0: gains); 0 if both have none."""
        return (self.running - self.candidate) / self.running if self.running > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Window:
    """Requests of one seed, by arrival from 0.

    Attributes:
        requests: One list for each seed.
        window_s: They arrive in [0, window).
        source: Where they come from, for people.
    """

    requests: tuple[tuple[Request, ...], ...]
    window_s: float
    source: str


def shadow(
    fleet: Fleet,
    catalog: Catalog,
    running: Sequence[Placed],
    candidate: Sequence[Placed],
    window: Window,
    *,
    period_s: float,
    policy: str,
    moves: Sequence[Move] = (),
) -> Shadow | None:
    """Simulate both; ``None`` if there is no request to simulate, nothing stands, or there are too many replicas.

    Args:
        fleet: The fleet.
        catalog: Service times.
        running: What stands.
        candidate: What the plan wants.
        window: The requests.
        period_s: What the plan is for (above 0).
        policy: Routing policy of both.
        moves: The plan's moves with their moments; without them the greedy rule puts them in order.
    """
    counts = [len(rows) for rows in window.requests if rows]
    most = sum(one.replicas for one in (*running, *candidate))
    if not counts or most > MOST_REPLICAS or not any(one.replicas for one in running):
        return None
    totals = [0.0, 0.0]
    for seed, rows in enumerate(window.requests):
        if rows:
            ratio = min(window.window_s / period_s, 1.0)
            for arm, after in enumerate((running, candidate)):
                made = change_execution(fleet, catalog, running, after, moves, time_scale=ratio)
                made = made if ratio == 1.0 else replace(made, gpus=None)
                totals[arm] += _goodput(fleet, made, rows, seed, window, policy)
    n = len(counts)
    return Shadow(totals[0] / n, totals[1] / n, max(counts), window.window_s, n, window.source)


def _goodput(
    fleet: Fleet, made: PlanExecution, requests: Sequence[Request], seed: int, window: Window, policy: str
) -> float:
    table = EndpointTable(made.specs)
    result = simulate(
        fleet,
        made.specs,
        requests,
        make_policy(policy, {}, table, seed),
        SimSettings(seed=seed, retries=1, time_limit_s=window.window_s + DRAIN_S),
        table=table,
        starts=made.starts,
        drains=made.drains,
        gpus=made.gpus,
    )
    return result.total.good_output_tokens / window.window_s
