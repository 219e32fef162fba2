"""All queues, and the order in which classes are served.

For one model, whoever comes first in this list and can be sent somewhere goes next:

(1)  a class that waits and has earned a turn by its floor: with share ``f`` of all work sent it earns ``f·work``
     at each dispatch of the model while it waits, and spends what it sends
(2)  requests of tenants whose guarantee is not used up, tighter classes first
(3)  classes within their quota of the capacity split, tighter ones first
(4)  classes beyond it, tighter ones first: they borrow what nobody within a quota can use just now
(5)  the late ones, whose targets are lost: oldest first

Without a plan every class is within its quota. A looser class thus takes what a tighter one leaves idle; a tighter
class beyond its quota never takes from a looser one within its own. Everything that waits is bounded by (1) in
share and by its time to live in age.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from data.fleet.types import Fleet, Tier, WorkloadClass
from router.slomax.bucket import Bucket
from router.slomax.classify import tightness_s
from router.slomax.fair_queue import FairQueue
from router.slomax.reaches import Reaches
from router.slomax.settings import SloMaxSettings
from router.slomax.types import QueueStatus
from router.slomax.waiting import Waiting, WaitingHeap
from router.types import RouteRequest

TIER_WEIGHTS: dict[Tier, float] = {"guaranteed": 4.0, "standard": 2.0, "best_effort": 1.0}
"""Factor on a tenant's weight in the shares within a class."""
LATE = "(late)"
"""Name of the queue of those whose targets are lost."""
QUOTA_BURST_S = 5.0
FLOOR_MARGIN = 1.1
"""A floor is earned this much faster than it says: what requests cost is estimated when they come."""
CREDIT_ITEMS = 4.0
"""A floor's credit never exceeds this many of the class's first request: no burst after a long block."""
Quotas = Mapping[tuple[str, str], float]
"""Output tokens/s of (model, class)."""
Turn = tuple[Waiting, int, bool]
"""A request, the rank by which the gate judges it, and whether it goes by its floor.

What was promised, a floor or a guarantee, is held back by no lower ceiling than that of the tightest class.
"""
PROMISED = 0
"""That rank."""


class Queues:
    """The queues of all models.

    Args:
        fleet: Classes, tenants, reservations.
        settings: Floors, bursts.
        now_s: The clock.
    """

    def __init__(self, fleet: Fleet, settings: SloMaxSettings, now_s: float) -> None:
        self._settings = settings
        kinds = sorted(fleet.classes, key=lambda kind: (tightness_s(kind.slo), kind.name))
        self.classes: dict[str, WorkloadClass] = {kind.name: kind for kind in kinds}
        self._ranks = {kind.name: rank for rank, kind in enumerate(kinds)}
        self._late_rank = len(kinds)
        self._weights = {one.name: TIER_WEIGHTS[one.tier] * one.weight for one in fleet.tenants}
        self._guarantees = _guarantees(fleet, settings.guarantee_burst_s, now_s)
        self._quotas: dict[tuple[str, str], Bucket] = {}
        self._by_model: dict[str, list[FairQueue]] = {}
        self._expiries = WaitingHeap()
        self.items: dict[int, tuple[Waiting, FairQueue]] = {}
        self.debt_factor: Callable[[str, str], float] = _no_debt
        """Factor on the weight of a tenant in a class, by class and tenant; looked at when a request comes."""

    def renewed(self, fleet: Fleet, now_s: float) -> Queues:
        """Empty queues for another fleet file; quotas stay, and guarantees keep their level."""
        new = Queues(fleet, self._settings, now_s)
        new._quotas = self._quotas
        new.debt_factor = self.debt_factor
        for key, bucket in new._guarantees.items():
            before = self._guarantees.get(key)
            if before is not None:
                new._guarantees[key] = before.reshaped(bucket.rate_per_s, bucket.burst, now_s)
        return new

    def rank(self, workload_class: str) -> int:
        """Place of a class by tightness, 0 = tightest."""
        return self._ranks[workload_class]

    def models(self) -> list[str]:
        """Models for which anybody waits."""
        return [model for model, queues in self._by_model.items() if any(queue.requests for queue in queues)]

    def queue(self, model: str, workload_class: str) -> FairQueue:
        """The queue of a class, made on first use."""
        queues = self._by_model.get(model)
        if queues is None:
            queues = [FairQueue(model, name, rank) for name, rank in self._ranks.items()]
            queues.append(FairQueue(model, LATE, self._late_rank))
            self._by_model[model] = queues
        return queues[self._ranks.get(workload_class, self._late_rank)]

    def all(self) -> Iterator[FairQueue]:
        """Every queue in which anybody waits."""
        for queues in self._by_model.values():
            yield from (queue for queue in queues if queue.requests)

    def add(self, item: Waiting) -> None:
        """Put a request into its class's queue, or the late one."""
        request = item.request
        queue = self.queue(request.model, LATE if item.late else request.workload_class)
        owed = self.debt_factor(request.workload_class, request.tenant)
        weight = owed * self._weights.get(request.tenant, 1.0)
        queue.add(item, weight, item.arrived_s if item.late else item.due_s)
        self._expiries.push(item.expires_s, item)
        self.items[item.ticket] = (item, queue)

    def remove(self, item: Waiting, served: bool = False) -> FairQueue:
        """Take a request out; gives the queue it was in."""
        _, queue = self.items.pop(item.ticket)
        queue.remove(item, served)
        self._expiries.discard()
        return queue

    def expired(self, now_s: float) -> Waiting | None:
        """A request whose time to live is over, still in its queue; ``None`` if there is none."""
        item = self._expiries.first()
        return item if item is not None and item.expires_s <= now_s else None

    def next_expiry_s(self) -> float:
        """When the next one expires; infinite if nobody waits."""
        item = self._expiries.first()
        return float("inf") if item is None else item.expires_s

    def ahead_s(self, model: str, rank: int) -> float:
        """Predicted prefill seconds of everything that waits for a model in classes up to ``rank``."""
        total = 0.0
        for queue in self._by_model.get(model, ()):
            if queue.rank <= rank:
                total += queue.prefill_s
        return total

    def ahead_of_s(self, model: str, rank: int, reach: int, reaches: Reaches) -> float:
        """The same of those alone that may take an endpoint of the set ``reach``."""
        total = 0.0
        for queue in self._by_model.get(model, ()):
            if queue.rank <= rank and queue.requests:
                parts = queue.prefill_by_reach
                if len(parts) == 1 and reach in parts:
                    total += queue.prefill_s
                    continue
                total += sum(prefill_s for other, prefill_s in parts.items() if reaches.meet(reach, other))
        return total

    def undisturbed(self, model: str, rank: int) -> bool:
        """Whether a new request of that rank would be served before all that wait for the model."""
        for queue in self._by_model.get(model, ()):
            if queue.requests and (queue.rank <= rank or self._due(queue)):
                return False
        return True

    def turns(self, model: str, now_s: float) -> Iterator[Turn]:
        """First requests of all flows of a model in the order of the module; one may come more than once."""
        waiting = [queue for queue in self._by_model.get(model, ()) if queue.requests]
        for queue in waiting:
            if self._due(queue):
                yield from ((item, PROMISED, True) for _, item in queue.heads())  # (1)
        if self._guarantees:
            for queue in waiting:
                if queue.rank < self._late_rank:
                    for _, item in queue.heads():
                        if self._guaranteed(item.request, now_s):
                            yield item, PROMISED, False  # (2)
        over = []
        for queue in waiting:
            quota = self._quotas.get((model, queue.workload_class))
            if queue.rank == self._late_rank or (quota is not None and quota.level(now_s) <= 0):
                over.append(queue)
                continue
            yield from ((item, queue.rank, False) for _, item in queue.heads())  # (3)
        for queue in over:
            yield from ((item, queue.rank, False) for _, item in queue.heads())  # (4), (5)

    def sent(self, request: RouteRequest, work: float, late: bool, by_floor: bool, now_s: float) -> None:
        """Account for a dispatch: floors earn, its own floor, guarantee and quota are charged."""
        model = request.model
        own = self.queue(model, LATE if late else request.workload_class)
        for queue in self._by_model[model]:
            if queue.requests:
                queue.credit += FLOOR_MARGIN * self._floor(queue) * work
        if by_floor:
            own.credit = max(own.credit - work, 0.0)
        for bucket in self._guarantee_buckets(request):
            bucket.take(request.expected_output_tokens, now_s)
        quota = self._quotas.get((model, request.workload_class))
        if quota is not None:
            quota.take(request.expected_output_tokens, now_s)

    def set_quotas(self, quotas: Quotas, now_s: float) -> None:
        """Put a new capacity split in force; who waits stays, and buckets keep their level."""
        old = self._quotas
        self._quotas = {}
        for key, rate in quotas.items():
            burst = max(rate * QUOTA_BURST_S, 1.0)
            before = old.get(key)
            self._quotas[key] = (
                Bucket(rate, burst, now_s) if before is None else before.reshaped(rate, burst, now_s)
            )

    def status(self, now_s: float, rows: int) -> tuple[QueueStatus, ...]:
        """What waits in each queue; ``rows`` endpoints share the predicted wait."""
        return tuple(
            QueueStatus(
                queue.model,
                queue.workload_class,
                queue.requests,
                queue.tokens,
                max(now_s - queue.oldest_s(), 0.0),
                self.ahead_s(queue.model, queue.rank) / max(rows, 1),
            )
            for queue in self.all()
        )

    def _floor(self, queue: FairQueue) -> float:
        if queue.rank == self._late_rank:
            return self._settings.late_share
        kind = self.classes.get(queue.workload_class)
        own = None if kind is None else kind.floor_share
        return self._settings.floor_share if own is None else own

    def _due(self, queue: FairQueue) -> bool:
        """Whether the floor has earned the first request of a queue its turn."""
        if queue.credit <= 0.0:
            return False
        first = next(queue.heads(), None)
        if first is None:
            return False
        work = first[1].work
        queue.credit = min(queue.credit, CREDIT_ITEMS * work)
        return queue.credit >= work

    def _guaranteed(self, request: RouteRequest, now_s: float) -> bool:
        return any(bucket.level(now_s) > 0 for bucket in self._guarantee_buckets(request))

    def _guarantee_buckets(self, request: RouteRequest) -> Iterable[Bucket]:
        if not self._guarantees:
            return ()
        tenant, model = request.tenant, request.model
        keys = ((tenant, model, request.workload_class), (tenant, model, None))
        return [self._guarantees[key] for key in keys if key in self._guarantees]


def _no_debt(_class: str, _tenant: str) -> float:
    return 1.0


def _guarantees(fleet: Fleet, burst_s: float, now_s: float) -> dict[tuple[str, str, str | None], Bucket]:
    """Buckets of the output tokens/s that tenants were promised."""
    rates: dict[tuple[str, str, str | None], float] = {}
    for tenant in fleet.tenants:
        for promise in tenant.reservations:
            if promise.tokens_per_s > 0:
                key = tenant.name, promise.model, promise.workload_class
                rates[key] = rates.get(key, 0.0) + promise.tokens_per_s
    return {key: Bucket(rate, max(rate * burst_s, 1.0), now_s) for key, rate in rates.items()}
