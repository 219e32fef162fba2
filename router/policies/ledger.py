"""One amount a dispatch, summed over each endpoint, taken back exactly once."""

from __future__ import annotations

import numpy as np

from router.types import RouteRequest


class Ledger:
    """Sums of work that a policy itself has charged to endpoints.

    Attributes:
        total: Sum of the open amounts of each endpoint; exactly 0 where nothing is open.
    """

    def __init__(self, n_endpoints: int) -> None:
        self.total = np.zeros(n_endpoints)
        self._open: dict[tuple[int, int], tuple[int, float]] = {}
        self._count = [0] * n_endpoints

    def __len__(self) -> int:
        return len(self._open)

    def charge(self, request: RouteRequest, endpoint: int, amount: float) -> None:
        """Add the amount of one attempt."""
        self.release(request)
        self._open[request.request_id, request.attempt] = (endpoint, amount)
        self._count[endpoint] += 1
        self.total[endpoint] += amount

    def release(self, request: RouteRequest) -> None:
        """Take the attempt's amount back; nothing happens if it is not open any more."""
        held = self._open.pop((request.request_id, request.attempt), None)
        if held is None:
            return
        endpoint, amount = held
        self._count[endpoint] -= 1
        # Nothing open is exactly nothing: sums of fractions would leave rounding behind.
        self.total[endpoint] = self.total[endpoint] - amount if self._count[endpoint] else 0.0

    def reset(self, endpoint: int) -> None:
        """Forget everything charged to the endpoint."""
        self._open = {key: held for key, held in self._open.items() if held[0] != endpoint}
        self._count[endpoint] = 0
        self.total[endpoint] = 0.0
