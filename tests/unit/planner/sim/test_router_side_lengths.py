"""An output-length predictor in the simulated router: it is asked, it learns, and only from what completed."""

from __future__ import annotations

from typing import Any

from data.catalog.load import load_catalog
from data.fleet.reference import reference_fleet
from data.types import Request
from models.output_length import LengthForecast, LengthQuery, StreamingLengths
from planner.sim.run import simulate
from planner.sim.settings import SimSettings
from router.build import endpoint_specs
from router.endpoints import EndpointTable
from router.policies.round_robin import ENTRY
from router.registry import make_policy
from router.types import RouteRequest

FLEET = reference_fleet("one-pool")
SPECS = endpoint_specs(FLEET, load_catalog(), FLEET.placement)
OUTPUT = 77


class Recorder(StreamingLengths):
    """Remembers what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []
        self.clocks: list[float] = []

    def predict(self, query: LengthQuery) -> LengthForecast:
        """Note the clock."""
        self.clocks.append(query.now_s)
        return super().predict(query)

    def observe(self, query: LengthQuery, output_tokens: int) -> None:
        """Note the length."""
        self.seen.append(output_tokens)
        super().observe(query, output_tokens)


def expectations(lengths: StreamingLengths | None, settings: SimSettings) -> list[float]:
    """Expected output of each request as the policy was told it."""
    requests = [
        Request(i, 0.5 * i, 500, OUTPUT, 2048, (), 512, "assistant@v1", "default", "interactive", "main")
        for i in range(200)
    ]
    table = EndpointTable(SPECS)
    policy: Any = make_policy(ENTRY.name, {}, table, 0)
    told: list[float] = []
    choose = policy.choose

    def noted(request: RouteRequest, *rest: Any) -> int:
        told.append(request.expected_output_tokens)
        return int(choose(request, *rest))

    policy.choose = noted
    simulate(FLEET, SPECS, requests, policy, settings, table=table, lengths=lengths)
    return told


def test_the_expected_output_is_learned_from_what_completed() -> None:
    lengths = Recorder()
    told = expectations(lengths, SimSettings())
    assert abs(told[-1] / OUTPUT - 1.0) < 0.1
    assert abs(told[0] / OUTPUT - 1.0) > 0.5
    assert lengths.seen == [OUTPUT] * 200
    assert lengths.clocks == sorted(lengths.clocks)


def test_a_cancelled_request_teaches_no_length() -> None:
    lengths = Recorder()
    told = expectations(lengths, SimSettings(cancel_share=1.0))
    assert len(lengths.seen) < len(told)
    assert len(told) == 200
    assert set(lengths.seen) <= {OUTPUT}


def test_without_a_predictor_the_running_mean_of_the_class_stands() -> None:
    told = expectations(None, SimSettings())
    assert told[0] > told[-1] > OUTPUT
    assert told == sorted(told, reverse=True)
