"""Expected wait as SMG's gateway computes it: a report polled now and then, plus its own dispatches since."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.types import FloatArray, IntArray
from router.endpoints import EndpointTable
from router.policies.base import known
from router.policies.settings import Checked, above, flag
from router.types import FleetView, RouteRequest

KV_WEIGHT_S = 0.15
KV_MOST = 0.99
"""KV use is cut off here so that k/(1-k) stays finite."""


@dataclass(frozen=True, slots=True)
class SmgWaitSettings(Checked):
    """Settings of the expected wait.

    Attributes:
        poll_period_s: Time between two looks at the engines' reports.
        prefill_rate_tokens_per_s: Assumed for every worker; engines here report no throughput.
        assumed_request_tokens: Tokens of a waiting request, and of a sent one without exact lengths.
        exact_tokens: Lengths of sent requests are known (gRPC) instead of assumed (HTTP).
    """

    poll_period_s: float = above(0, 10.0)
    prefill_rate_tokens_per_s: float = above(0, 2000.0)
    assumed_request_tokens: float = above(0, 1024.0)
    exact_tokens: bool = flag(True)


class SmgWait:
    """Own copy of the reports, refreshed every poll, with a credit of what was sent since."""

    def __init__(self, settings: SmgWaitSettings, table: EndpointTable) -> None:
        n = len(table)
        self._settings = settings
        self._polled_at_s = -np.inf
        self._reported = np.zeros(n, dtype=bool)
        self._queued = np.zeros(n)
        self._kv_use = np.zeros(n)
        self._sent = np.zeros(n)
        self.processed = np.zeros(n)

    def poll(self, view: FleetView) -> None:
        """Take over the engines' reports if a poll is due; this clears the credit of own dispatches."""
        if view.now_s - self._polled_at_s < self._settings.poll_period_s:
            return
        table = view.endpoints
        self._polled_at_s = view.now_s
        self._reported = ~np.isnan(table.reported_at_s)
        self._queued = known(table.waiting) * self._settings.assumed_request_tokens
        self._kv_use = np.minimum(known(table.kv_use), KV_MOST)
        self._sent[:] = 0.0

    def sent(self, request: RouteRequest, endpoint: int) -> None:
        """Remember a dispatch until the next poll."""
        settings = self._settings
        self._sent[endpoint] += request.input_tokens if settings.exact_tokens else settings.assumed_request_tokens
        self.processed[endpoint] += 1

    def queued_tokens(self, candidates: IntArray) -> FloatArray:
        """Prefill tokens believed to wait: as reported, plus those sent since."""
        queued: FloatArray = self._queued[candidates] + self._sent[candidates]
        return queued

    def wait_s(self, candidates: IntArray, inflight: FloatArray) -> FloatArray:
        """Expected wait in seconds; without any report, the requests in flight."""
        reported = self._reported[candidates]
        if not reported.any():
            return inflight
        rate = self._settings.prefill_rate_tokens_per_s
        k = self._kv_use[candidates]
        wait: FloatArray = self.queued_tokens(candidates) / rate + KV_WEIGHT_S * k / (1.0 - k)
        if not reported.all():
            # Without a report a worker looks like the best of its peers, plus its own requests in flight.
            guess = wait[reported].min() + inflight * self._settings.assumed_request_tokens / rate
            wait = np.where(reported, wait, guess)
        return wait

    def least(self, candidates: IntArray, view: FleetView) -> int:
        """The candidate with the least wait; equal ones by requests in flight, then processed, then index."""
        inflight = view.endpoints.inflight[candidates]
        wait = self.wait_s(candidates, inflight)
        rows = np.flatnonzero(wait == wait.min())
        if len(rows) > 1:
            rows = rows[inflight[rows] == inflight[rows].min()]
        rows = candidates[rows]
        return int(rows[self.processed[rows].argmin()])

    def reset(self, endpoint: int) -> None:
        """Forget one worker."""
        self._reported[endpoint] = False
        for column in (self._queued, self._kv_use, self._sent, self.processed):
            column[endpoint] = 0.0
