"""Callers that cannot show who they are have a budget for each source, and touch no tenant's."""

from __future__ import annotations

from collections import OrderedDict

from router.slomax.bucket import Bucket

MAX_SOURCES = 10_000
"""Sources that are remembered; the least recently seen are forgotten first."""


class UnverifiedSources:
    """One bucket of calls for each source.

    Args:
        per_s: Calls a second (above 0); as many, one at least, may come at once.
    """

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._sources: OrderedDict[str, Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sources)

    def take(self, source: str, now_s: float) -> float:
        """Count one call of a source; gives the seconds until it may come again, 0 = go on."""
        sources = self._sources
        bucket = sources.get(source)
        if bucket is None:
            bucket = sources[source] = Bucket(self._per_s, max(self._per_s, 1.0), now_s)
            if len(sources) > MAX_SOURCES:
                sources.popitem(last=False)
        sources.move_to_end(source)
        wait_s = bucket.covered_in_s(1.0, now_s)
        if wait_s <= 0.0:
            bucket.take(1.0, now_s)
        return wait_s


def source_of(peer: str) -> str:
    """The host of a gRPC peer such as ``ipv4:10.0.0.7:51234``; other kinds of peer as they are."""
    return peer.rpartition(":")[0] if peer.startswith(("ipv4:", "ipv6:")) else peer
