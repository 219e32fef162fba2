"""Budgets of tenants: the worst case is reserved when a request is let in and settled when it has ended.

A request reserves its prompt and its whole output budget at once, in every limit or in none, so that any number of
parallel requests cannot use more than the bucket holds, and a refused one changes no counter. At its end what it
did not use goes back. A reservation that nobody settles keeps its tokens spent, but gives its place among the
concurrent ones back after the lease time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from data.fleet.types import Tenant
from router.slomax.bucket import Bucket
from router.slomax.limits import Limits, limits_of
from router.slomax.settings import SloMaxSettings
from router.slomax.types import BudgetStatus

Key = tuple[int, int]
"""Request and attempt."""


@dataclass(slots=True)
class Reservation:
    """What one admitted attempt holds."""

    account: TenantBudget
    tokens: float
    since_s: float


class TenantBudget:
    """The limits of one tenant; an absent bucket does not limit."""

    __slots__ = ("concurrent", "in_flight", "name", "requests", "reserved_tokens", "tokens")

    def __init__(self, name: str, limits: Limits, burst_s: float, now_s: float) -> None:
        self.name = name
        self.tokens = _bucket(limits.tokens_per_s, burst_s, now_s)
        self.requests = _bucket(limits.requests_per_s, burst_s, now_s)
        self.concurrent = limits.concurrent
        self.in_flight = 0
        self.reserved_tokens = 0.0

    def set_limits(self, limits: Limits, burst_s: float, now_s: float) -> None:
        """Other limits of the same tenant; levels stay, within the new bursts."""
        self.tokens = _reshaped(self.tokens, limits.tokens_per_s, burst_s, now_s)
        self.requests = _reshaped(self.requests, limits.requests_per_s, burst_s, now_s)
        self.concurrent = limits.concurrent

    def wait_s(self, tokens: float, now_s: float) -> float:
        """Seconds until a request of ``tokens`` would be let in: 0 = now, infinite = never."""
        waits = [0.0]
        if self.tokens is not None:
            waits.append(self.tokens.covered_in_s(tokens, now_s))
        if self.requests is not None:
            waits.append(self.requests.covered_in_s(1.0, now_s))
        if self.concurrent is not None and self.in_flight >= self.concurrent:
            waits.append(1.0)  # nobody knows when one of them ends; it may be soon
        return max(waits)

    def take(self, tokens: float, now_s: float) -> None:
        """Reserve in every limit; only after ``wait_s`` was 0."""
        if self.tokens is not None:
            self.tokens.take(tokens, now_s)
        if self.requests is not None:
            self.requests.take(1.0, now_s)
        self.in_flight += 1
        self.reserved_tokens += tokens

    def settle(self, reserved: float, used: float, now_s: float) -> None:
        """An attempt ended; what it did not use goes back, what it used beyond becomes debt."""
        if self.tokens is not None:
            self.tokens.give(reserved - used, now_s)
        self.in_flight -= 1
        self.reserved_tokens -= reserved

    def undo(self, reserved: float, now_s: float) -> None:
        """The attempt never began: as if it had not come."""
        self.settle(reserved, 0.0, now_s)
        if self.requests is not None:
            self.requests.give(1.0, now_s)


class Budgets:
    """All tenants' budgets.

    Args:
        tenants: The fleet's.
        settings: Burst, lease time.
        now_s: The clock.
    """

    def __init__(self, tenants: Iterable[Tenant], settings: SloMaxSettings, now_s: float) -> None:
        self._settings = settings
        self._accounts: dict[str, TenantBudget] = {}
        self.set_tenants(tenants, now_s)
        self._open: OrderedDict[Key, Reservation] = OrderedDict()

    def set_tenants(self, tenants: Iterable[Tenant], now_s: float) -> None:
        """Other tenants or limits; what is reserved stays, and a tenant that stays keeps its level."""
        burst_s, old = self._settings.budget_burst_s, self._accounts
        self._accounts = {}
        for tenant in tenants:
            limits = limits_of(tenant, self._settings.budget_share)
            account = old.get(tenant.name)
            if account is None:
                account = TenantBudget(tenant.name, limits, burst_s, now_s)
            else:
                account.set_limits(limits, burst_s, now_s)
            self._accounts[tenant.name] = account

    def reserve(self, key: Key, tenant: str, tokens: float, now_s: float) -> float:
        """Reserve ``tokens`` (prompt and whole output budget) and one request for an attempt, or nothing at all.

        Gives the seconds until it would be let in: 0 = it is in. A tenant without any budget is always let in.
        """
        self.expire(now_s)
        account = self._accounts.get(tenant)
        if account is None or key in self._open:
            return 0.0
        wait_s = account.wait_s(tokens, now_s)
        if wait_s <= 0.0:
            account.take(tokens, now_s)
            self._open[key] = Reservation(account, tokens, now_s)
        return wait_s

    def settle(self, key: Key, used_tokens: float, now_s: float) -> None:
        """An attempt ended having used ``used_tokens``; one that is not open (any more) changes nothing."""
        held = self._open.pop(key, None)
        if held is not None:
            held.account.settle(held.tokens, used_tokens, now_s)

    def undo(self, key: Key, now_s: float) -> None:
        """An attempt that was let in was never sent: all of it goes back."""
        held = self._open.pop(key, None)
        if held is not None:
            held.account.undo(held.tokens, now_s)

    def expire(self, now_s: float) -> None:
        """Give up reservations older than the lease time; they count as used."""
        opened = self._open
        while opened:
            key, held = next(iter(opened.items()))
            if held.since_s > now_s - self._settings.lease_s:
                return
            del opened[key]
            held.account.settle(held.tokens, held.tokens, now_s)

    def status(self, now_s: float) -> tuple[BudgetStatus, ...]:
        """Every tenant's budgets, by name."""
        self.expire(now_s)
        return tuple(_status(self._accounts[name], now_s) for name in sorted(self._accounts))


def _bucket(rate_per_s: float | None, burst_s: float, now_s: float) -> Bucket | None:
    if rate_per_s is None:
        return None
    bucket = Bucket(rate_per_s, max(rate_per_s * burst_s, 1.0), now_s)
    if rate_per_s == 0:
        bucket.take(bucket.burst, now_s)
    return bucket


def _reshaped(bucket: Bucket | None, rate_per_s: float | None, burst_s: float, now_s: float) -> Bucket | None:
    new = _bucket(rate_per_s, burst_s, now_s)
    if bucket is None or new is None:
        return new
    return bucket.reshaped(new.rate_per_s, new.burst, now_s)


def _status(account: TenantBudget, now_s: float) -> BudgetStatus:
    tokens, requests = account.tokens, account.requests
    return BudgetStatus(
        tenant=account.name,
        tokens_left=None if tokens is None else tokens.level(now_s),
        tokens_per_s=None if tokens is None else tokens.rate_per_s,
        requests_left=None if requests is None else requests.level(now_s),
        requests_per_s=None if requests is None else requests.rate_per_s,
        reserved_tokens=account.reserved_tokens,
        in_flight=account.in_flight,
        concurrent=account.concurrent,
    )
