"""Whether a request that cannot go at once may wait: bounds of its queue, and its chance to make it."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from data.fleet.types import Fleet, Tier
from data.types import RefusalReason
from router.slomax.queues import Queues
from router.slomax.reaches import Reaches
from router.slomax.settings import SloMaxSettings
from router.slomax.waiting import Waiting

SPREAD = 0.35
"""Standard deviation of log TTFT that is assumed under load."""
TIER_CAUTION: dict[Tier, float] = {"guaranteed": 0.5, "standard": 1.0, "best_effort": 1.5}
"""Factor on the least chance that a tenant's request must have; a guaranteed one is turned away last."""
STEP_ALLOWANCE = 2.0
"""Decode under load takes this many times an undisturbed step, when a deadline is turned into a latest start."""
_NORMAL = NormalDist()


class Admission:
    """The rules that need no endpoint.

    Args:
        fleet: Classes and tiers.
        settings: Bounds.
        queues: What waits.
        rng: Draws who is shed.
    """

    def __init__(self, fleet: Fleet, settings: SloMaxSettings, queues: Queues, rng: np.random.Generator) -> None:
        self._settings = settings
        self._queues = queues
        self._rng = rng
        self._caution = {one.name: TIER_CAUTION[one.tier] for one in fleet.tenants}
        self._guaranteed = {one.name for one in fleet.tenants if one.tier == "guaranteed"}

    def ttl_s(self, workload_class: str, own_s: float | None) -> float:
        """Longest wait: the least of the global bound, the class's and the caller's. A caller can only shorten."""
        kind = self._queues.classes[workload_class]
        bounds = (self._settings.max_ttl_s, kind.queue_ttl_s, own_s)
        return min(bound for bound in bounds if bound is not None)

    def latest_start_s(self, item: Waiting, spare_s: float) -> float:
        """When the request must be sent at the latest to meet its first binding target; infinite without any.

        Args:
            item: The request, its prefill known.
            spare_s: Round trip and one step.
        """
        slo = item.request.slo
        if slo.ttft_s is not None:
            return item.arrived_s + slo.ttft_s - item.prefill_s - spare_s
        if slo.deadline_s is not None:
            decode_s = STEP_ALLOWANCE * spare_s * item.request.expected_output_tokens
            return item.arrived_s + slo.deadline_s - item.prefill_s - decode_s
        return math.inf

    def wait_s(self, item: Waiting, rows: int, reaches: Reaches) -> float:
        """Predicted wait behind what is as tight or tighter and may take any of its own ``rows`` endpoints."""
        request = item.request
        rank = self._queues.rank(request.workload_class)
        return self._queues.ahead_of_s(request.model, rank, item.reach, reaches) / max(rows, 1)

    def full(self, item: Waiting, wait_s: float) -> RefusalReason | None:
        """Whether the queue has no room for a request that would wait ``wait_s``."""
        settings, request = self._settings, item.request
        queue = self._queues.queue(request.model, request.workload_class)
        full = (
            queue.requests >= settings.queue_requests
            or queue.tokens + request.input_tokens > settings.queue_tokens
            or wait_s > settings.queue_wait_s
        )
        return RefusalReason.QUEUE_FULL if full else None

    def hopeless(self, item: Waiting, ttft_s: float, wait_s: float, now_s: float) -> RefusalReason | None:
        """Whether a request of a class that refuses the late ones has too little chance to make it.

        With ``shed`` it is turned away with the probability that it misses: the more so the less it can hope, and
        those that stay wait behind fewer. The guaranteed tier is never drawn for.

        Args:
            item: The request.
            ttft_s: Its least predicted TTFT once its turn has come.
            wait_s: Predicted time until then.
            now_s: The clock.
        """
        tenant = item.request.tenant
        least = self._settings.refuse_below * self._caution.get(tenant, 1.0)
        if self._settings.shed and tenant not in self._guaranteed:
            least = max(least, float(self._rng.random()))
        return RefusalReason.OVERLOADED if self.meets(item, wait_s, ttft_s, now_s) < least else None

    def meets(self, item: Waiting, wait_s: float, ttft_s: float, now_s: float) -> float:
        """Probability to meet the first target or deadline after a wait, by a log-normal TTFT."""
        slo = item.request.slo
        if slo.ttft_s is None:
            return 1.0 if now_s + wait_s <= item.due_s else 0.0
        left_s = slo.ttft_s - (now_s - item.arrived_s) - wait_s
        if left_s <= 0:
            return 0.0
        return _NORMAL.cdf(math.log(left_s / max(ttft_s, 1e-6)) / SPREAD)
