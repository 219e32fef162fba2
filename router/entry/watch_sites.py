"""What an entry router knows of its sites, as an event for watchers: one entry for each site and model."""

from __future__ import annotations

from collections.abc import Iterator

from router.entry.entry_state import EntryState
from router.pb.v1 import router_pb2 as pb


def watch_sites(entry: EntryState, cause: str) -> pb.WatchEvent:
    """Versions, and each pool as if it were one endpoint; ``metrics`` tells how fresh the site's reports are."""
    serving = entry.serving
    return pb.WatchEvent(
        revision=serving.revision,
        plan_id=serving.plan_id,
        fleet_digest=entry.fleet.digest,
        cause=cause,
        endpoints=_pools(entry),
    )


def _pools(entry: EntryState) -> Iterator[pb.EndpointState]:
    now_s = entry.clock()
    for site, link in entry.links.items():
        state = link.state
        usable, freshness = state.usable(now_s, entry.settings), state.freshness(now_s, entry.settings)
        for model, pool in state.pools.items():
            yield pb.EndpointState(
                endpoint_id=f"{site}/{model}",
                site=site,
                model=model,
                address=link.address,
                ready=usable and pool.ready > 0,
                draining=state.draining,
                healthy=not state.trouble,
                metrics=freshness.value,
                incarnation=state.lease_base,
            )
