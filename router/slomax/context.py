"""What a flow control is built on: the router's view of the fleet, handed in as values and functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from data.fleet.types import Fleet
from data.types import FloatArray, RefusalReason
from router.endpoints import EndpointTable
from router.slomax.types import Candidates
from router.types import PrefixLookup, RouteRequest


@dataclass(frozen=True, slots=True)
class FlowContext:
    """The surroundings of one flow control.

    Attributes:
        fleet: Classes, tenants, reservations.
        table: Endpoints; read, never written.
        prefixes: Who holds which prefix.
        candidates: The hard filters.
        reason: Why no endpoint is a candidate for a request.
        rtt_s: Round trips from an origin to each endpoint of the table.
        seed: Of the jitter of retry hints.
        now_s: The clock at the start.
    """

    fleet: Fleet
    table: EndpointTable
    prefixes: PrefixLookup
    candidates: Candidates
    reason: Callable[[RouteRequest], RefusalReason]
    rtt_s: Callable[[str], FloatArray]
    seed: int = 0
    now_s: float = 0.0

    def hit_tokens(self, request: RouteRequest) -> FloatArray:
        """Predicted prefix-hit tokens at each endpoint; see ``FleetView.hit_tokens``."""
        if not request.block_hashes:
            return np.zeros(len(self.table))
        blocks = self.prefixes.matched_blocks(request.block_hashes)
        hits: FloatArray = np.minimum(blocks * float(request.block_tokens), request.input_tokens - 1.0)
        return hits
