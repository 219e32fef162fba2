"""F070: an endpoint that was slow and has recovered gets its share back, without exploration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from data.catalog.load import load_catalog
from data.fleet.reference import reference_fleet
from data.types import Request
from planner.sim.run import simulate
from planner.sim.settings import FailureEvent, SimSettings
from router.build import endpoint_specs
from router.endpoints import EndpointTable
from router.registry import make_policy

FLEET = reference_fleet("one-pool")
SPECS = endpoint_specs(FLEET, load_catalog(), FLEET.placement)
SLOW, FROM_S, UNTIL_S, END_S = 0, 60.0, 150.0, 240.0


class Shares:
    """A record sink that counts decisions by endpoint and time."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, str]] = []

    def decision(self, row: dict[str, Any]) -> None:
        """Keep when and where."""
        self.rows.append((row["decided_s"], row["endpoint"]))

    def outcome(self, row: dict[str, Any]) -> None:
        """Nothing to count."""

    def share(self, since_s: float, until_s: float) -> float:
        """Of the slow endpoint, against an equal share."""
        chosen = [endpoint for at_s, endpoint in self.rows if since_s <= at_s < until_s]
        return chosen.count(SPECS[SLOW].endpoint_id) * len(SPECS) / len(chosen)


def requests(seed: int) -> Iterator[Request]:
    """A Poisson stream that keeps every endpoint busy."""
    random = np.random.default_rng(seed)
    clock, number = 0.0, 0
    while clock < END_S:
        prompt = int(np.clip(random.lognormal(7.6, 1.0), 16, 60_000))
        output = int(np.clip(random.lognormal(5.0, 0.7), 2, 1500))
        yield Request(
            number, clock, prompt, output, 2048, (), 512, "assistant@v1", "default", "interactive", "main"
        )
        clock, number = clock + random.exponential(0.06), number + 1


def shares(seed: int) -> tuple[float, float, float]:
    """Of the endpoint before it is slow, while it is, and from 30 s after it has recovered."""
    table, sink = EndpointTable(SPECS), Shares()
    failures = (FailureEvent(FROM_S, SLOW, "slow", UNTIL_S - FROM_S, 4.0),)
    policy = make_policy("tokenpilot", {}, table, seed)
    settings = SimSettings(seed=seed, failures=failures)
    simulate(FLEET, SPECS, requests(seed), policy, settings, table=table, sink=sink)
    return sink.share(0.0, FROM_S), sink.share(FROM_S + 15.0, UNTIL_S), sink.share(UNTIL_S + 30.0, END_S)


def test_f070_the_share_is_fair_again_30_s_after_the_recovery() -> None:
    """No feature names an endpoint, so nothing that was learned while it was slow outlives its own queue.

    On a fleet with room a single run's shares differ from equal ones by a half, so the fall is that of four runs.
    """
    before, slow, after = np.array([shares(seed) for seed in range(1, 5)]).T
    assert before.mean() > 0.8
    assert slow.mean() < 0.75 * before.mean()
    assert after.min() > 0.85


@pytest.mark.xfail(
    strict=True, reason="0.87 of an equal share in the mean; likely, a price that all candidates share widens ties"
)
def test_a_slow_endpoint_loses_a_quarter_of_its_share_while_the_fleet_has_room() -> None:
    """Wanted in every run; TokenPilot met it (0.68 to 0.70) before it priced what others lose."""
    assert max(shares(seed)[1] for seed in range(1, 5)) < 0.75
