"""Token pools: tenants hold entitlements in tokens/s; who is owed most goes first, low priority back-fills.

Debt of a tenant = entitlement − delivered tokens, decaying. Order: tenants of the guaranteed tier that are owed
something, then by class, then by debt in seconds of the own entitlement. Without reservations all tenants of a
fleet hold equal entitlements.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from data.types import IntArray
from router.policies.settings import Checked, above, whole
from router.slomax.context import FlowContext
from router.slomax.rivals.base import RivalBase, below_prefill, below_slots
from router.slomax.waiting import Waiting

Name = tuple[str, str, str]
"""Model, tenant, class."""


@dataclass(frozen=True, slots=True)
class TokenPoolSettings(Checked):
    """Settings.

    Attributes:
        slots: Requests in flight at one endpoint, at most.
        busy_share: A worker takes no more above this share of its batch-token budget in prefill.
        half_life_s: Debts and credits halve in this time.
        default_tokens_per_s: Entitlement of a tenant without any reservation.
        queue_requests: Most requests in one queue.
    """

    slots: int = whole(1, 64)
    busy_share: float = above(0.0, 1.0)
    half_life_s: float = above(0.0, 30.0)
    default_tokens_per_s: float = above(0.0, 100.0)
    queue_requests: int = whole(1, 100_000)


class TokenPools(RivalBase):
    """The rule, over input and output tokens."""

    name = "token_pools"

    def __init__(self, context: FlowContext, settings: TokenPoolSettings) -> None:
        super().__init__(context, settings.queue_requests)
        self._settings = settings
        tenants = context.fleet.tenants
        self._tiers = {one.name: one.tier for one in tenants}
        self._rates = {
            one.name: sum(promise.tokens_per_s for promise in one.reservations) or settings.default_tokens_per_s
            for one in tenants
        }
        self._debts: dict[str, float] = {}
        self._at_s = context.now_s

    def queue_of(self, item: Waiting) -> Name:
        """One queue for each tenant and class of a model."""
        request = item.request
        return request.model, request.tenant, request.workload_class

    def order(self, now_s: float) -> Iterable[Name]:
        """Who is owed most first; the guaranteed tier before all others while it is owed anything."""
        self._decay(now_s)
        return sorted(self.waiting_in(), key=self._place)

    def open_rows(self, item: Waiting, rows: IntArray, now_s: float) -> IntArray:  # noqa: ARG002
        """Endpoints below both limits."""
        settings = self._settings
        return below_slots(self.context, below_prefill(self.context, rows, settings.busy_share), settings.slots)

    def leaves(self, name: Name, item: Waiting, now_s: float) -> None:  # noqa: ARG002
        """What is delivered lowers the debt."""
        cost = item.work + item.request.expected_output_tokens
        self._debts[name[1]] = self._debts.get(name[1], 0.0) - cost

    def _place(self, name: Name) -> tuple[bool, int, float, float]:
        tenant = name[1]
        owed_s = self._debts.get(tenant, 0.0) / self._rates.get(tenant, self._settings.default_tokens_per_s)
        first = self._tiers.get(tenant) == "guaranteed" and owed_s > 0
        return not first, self.ranks[name[2]], -owed_s, self.first_in(name).arrived_s

    def _decay(self, now_s: float) -> None:
        passed_s = max(now_s - self._at_s, 0.0)
        self._at_s = max(now_s, self._at_s)
        keep = 0.5 ** (passed_s / self._settings.half_life_s)
        waiting = {name[1] for name in self.waiting_in()}
        for tenant in waiting | set(self._debts):
            earned = self._rates.get(tenant, self._settings.default_tokens_per_s) * passed_s
            self._debts[tenant] = self._debts.get(tenant, 0.0) * keep + (earned if tenant in waiting else 0.0)
