"""What a scrape reads of the choice between sites, in a router of one level and in an entry router."""

from __future__ import annotations

import math
from collections.abc import Iterator

from router.entry.entry_state import EntryState
from router.entry.site_state import Freshness
from router.observe.metrics import Sample
from router.serving.live import LiveRouter


def site_samples(live: LiveRouter) -> Iterator[Sample]:
    """Of a router that chooses the site itself; nothing where it does not."""
    sites = live.core.sites
    if sites is None:
        return
    counts = sites.counts
    for site, chosen in list(counts.chosen.items()):
        away = counts.away.get(site, 0)
        yield Sample("site_choices", (site, "yes"), float(chosen - away))
        yield Sample("site_choices", (site, "no"), float(away))


def entry_samples(entry: EntryState) -> Iterator[Sample]:
    """Of an entry router."""
    yield Sample("leases_open", (), float(len(entry.leases)))
    yield Sample("serving_info", ("", entry.serving.plan_id, entry.fleet.digest), 1.0)
    by_site: dict[tuple[str, str], float] = {}
    for (_, site, local), count in list(entry.choices.items()):
        key = site, "yes" if local else "no"
        by_site[key] = by_site.get(key, 0.0) + count
    for key, sent in by_site.items():
        yield Sample("site_choices", key, sent)
    for (site, reason), count in list(entry.fallbacks.items()):
        yield Sample("site_fallbacks", (site, reason), float(count))
    now_s = entry.clock()
    for site, link in entry.links.items():
        state = link.state
        yield Sample("site_breaches_refused", (site,), float(entry.breaches[site]))
        if not math.isinf(state.age_s(now_s)):
            yield Sample("site_summary_age_seconds", (site,), state.age_s(now_s))
        now = state.freshness(now_s, entry.settings)
        for one in Freshness:
            yield Sample("site_summary_state", (site, one.value), float(one is now))
        yield Sample("site_up", (site,), float(link.reachable() and not state.draining))
        yield Sample("site_lost", (site,), float(link.lost))
        yield Sample("site_reports_held", (site,), float(len(link.held)))
        yield Sample("site_reports_dropped", (site,), float(link.held.dropped))
        for model, pool in state.pools.items():
            yield Sample("site_ready_replicas", (site, model), float(pool.ready))
            yield Sample("site_load", (site, model), pool.load)
