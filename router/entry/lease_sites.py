"""Which site holds a lease, told by the lease's number alone: an entry that restarts has forgotten nothing."""

from __future__ import annotations

from collections import OrderedDict

LEASE_BITS = 40
"""Leases of one router process share the bits above these."""
MOST_PROCESSES = 4096


class LeaseSites:
    """Site of each router process that was heard of; the oldest are forgotten beyond a bound."""

    def __init__(self) -> None:
        self._sites: OrderedDict[int, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sites)

    def learn(self, lease_id: int, site: str) -> None:
        """A process whose leases look like this one stands at ``site``."""
        key = lease_id >> LEASE_BITS
        self._sites[key] = site
        self._sites.move_to_end(key)
        if len(self._sites) > MOST_PROCESSES:
            self._sites.popitem(last=False)

    def site(self, lease_id: int) -> str:
        """Where the lease is held; empty = not known."""
        return self._sites.get(lease_id >> LEASE_BITS, "")
