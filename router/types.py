"""What a routing policy is given and what it answers: the same in the service and in the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from data.types import FloatArray, IntArray, Outcome, Slo
from router.endpoints import EndpointTable


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """One request as the router sees it: the output *budget*, never the output length.

    Attributes:
        model: Key ``name@version``.
        block_hashes: One chained 64-bit id a prompt block; empty = no prefix known.
        expected_output_tokens: Mean output length of the class, learned or declared.
        weight: Worth of one output token (tier × tenant × class).
        attempt: 0 for the first try; retries count up and pass the same filters.
    """

    request_id: int
    model: str
    tenant: str
    workload_class: str
    origin: str
    input_tokens: int
    output_budget: int
    expected_output_tokens: float
    block_hashes: tuple[int, ...]
    block_tokens: int
    session_id: str
    slo: Slo
    weight: float = 1.0
    attempt: int = 0


class PrefixLookup(Protocol):
    """An index of which endpoint holds which prompt prefix."""

    def matched_blocks(self, block_hashes: tuple[int, ...]) -> IntArray:
        """Leading blocks held without a gap, one entry for each endpoint of the table."""
        ...


@dataclass(frozen=True, slots=True)
class FleetView:
    """What the router knows at the moment of a decision.

    Attributes:
        now_s: The clock.
        endpoints: Last reports and local accounting, one row an endpoint.
        prefixes: Index fed by the engines' own events (late by the event lag).
        rtt_s: Round trip from the request's origin to each endpoint, aligned with the table.
    """

    now_s: float
    endpoints: EndpointTable
    prefixes: PrefixLookup
    rtt_s: FloatArray

    def hit_tokens(self, request: RouteRequest) -> FloatArray:
        """Predicted prefix-hit tokens for each endpoint, within [0, input tokens − 1].

        At least one token is always computed: engines recompute the last one even on a full hit.
        """
        if not request.block_hashes:
            return np.zeros(len(self.endpoints))
        blocks = self.prefixes.matched_blocks(request.block_hashes)
        hits: FloatArray = np.minimum(blocks * float(request.block_tokens), request.input_tokens - 1.0)
        return hits

    def hit_tokens_at(self, request: RouteRequest, rows: IntArray) -> FloatArray:
        """``hit_tokens`` of the endpoints ``rows`` alone."""
        if not request.block_hashes:
            return np.zeros(len(rows))
        blocks = self.prefixes.matched_blocks(request.block_hashes).take(rows)
        hits: FloatArray = np.minimum(blocks * float(request.block_tokens), request.input_tokens - 1.0)
        return hits


class Policy(Protocol):
    """Picks one endpoint for a request.

    ``candidates`` holds row numbers of the endpoint table that passed every hard filter: never empty, sorted.
    A policy must not look at other rows for anything but its own bookkeeping. It breaks ties as its rule says
    (a seeded generator is given at construction) and may keep its own state through the three notices.
    """

    @property
    def name(self) -> str:
        """Registry name."""
        ...

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:
        """The chosen row number, one of ``candidates``."""
        ...

    def dispatched(self, request: RouteRequest, endpoint: int, view: FleetView) -> None:
        """The request was sent to ``endpoint``."""
        ...

    def first_token(self, request: RouteRequest, endpoint: int, now_s: float, ttft_s: float) -> None:
        """Its first token came, ``ttft_s`` after dispatch."""
        ...

    def finished(self, request: RouteRequest, outcome: Outcome) -> None:
        """The attempt ended, however it ended; called exactly once for each dispatch."""
        ...

    def endpoint_reset(self, endpoint: int) -> None:
        """The endpoint left or came back with a new incarnation: forget all that was known about it."""
        ...


PolicySettings = Mapping[str, float | int | str | bool]
BoolArray = npt.NDArray[np.bool_]
