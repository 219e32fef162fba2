"""What a scrape reads from a running router's own state: endpoints, leases, index, versions, calls, log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from data.log.settings import WriteReport
from router.feeds.breaker import Phase
from router.feeds.endpoint_state import ReportState
from router.feeds.engine_feeds import EngineFeeds
from router.feeds.stages import Stage
from router.observe.metrics import Sample
from router.serving.call_gate import CallGate
from router.serving.live import LiveRouter
from router.serving.reload import WatchedFile


def live_samples(live: LiveRouter) -> Iterator[Sample]:
    """Gauges of the router itself."""
    yield Sample("leases_open", (), float(len(live.leases)))
    yield Sample("prefix_index_blocks", (), float(len(live.index)))
    yield Sample("prefix_index_bytes", (), float(live.index.memory_bytes()))
    yield Sample("prefix_index_evictions", (), float(live.index.evictions))
    yield Sample("prefix_index_unmatched_removes", (), float(live.index.unmatched_removes))
    for row, kind in live.credit.book.uncredited():
        yield Sample("parity_mismatch", (live.core.table.specs[row].endpoint_id, kind), 1.0)
    for kind, count in list(live.credit.without_blocks.items()):
        yield Sample("requests_without_blocks", (kind,), float(count))
    serving = live.serving
    yield Sample("serving_info", (serving.model_version, serving.plan_id, live.state.digest), 1.0)
    yield from _endpoint_samples(live)
    yield from _stage_samples(live)


def _endpoint_samples(live: LiveRouter) -> Iterator[Sample]:
    table, now_s = live.core.table, live.clock()
    for endpoint in live.rows.endpoints():
        name, row = endpoint.endpoint_id, live.rows.row(endpoint.endpoint_id)
        if row is None:
            continue
        up = table.ready[row] and table.healthy[row] and not table.draining[row]
        yield Sample("endpoint_up", (name, endpoint.spec.site, endpoint.spec.model), float(up))
        yield Sample("endpoint_inflight", (name,), float(table.inflight[row]))
        phase = live.health.phase(row)
        for one in Phase:
            yield Sample("endpoint_circuit", (name, one.value), float(one is phase))
        state = live.states.state(row, now_s)
        for each in ReportState:
            yield Sample("endpoint_metrics_state", (name, each.value), float(each is state))
        age_s = now_s - float(table.reported_at_s[row])
        if not np.isnan(age_s):
            yield Sample("endpoint_metrics_age_seconds", (name,), age_s)


def _stage_samples(live: LiveRouter) -> Iterator[Sample]:
    now_s = live.clock()
    yield Sample("endpoints_gone", (), float(live.stages.left_in_all))
    for name, life in list(live.stages.lives.items()):
        for stage in Stage:
            if stage is not Stage.GONE:
                yield Sample("endpoint_stage", (name, stage.value), float(stage is life.stage))
        for stage, spent_s in life.seconds(now_s).items():
            yield Sample("endpoint_stage_seconds", (name, stage.value), spent_s)


def feed_samples(feeds: EngineFeeds) -> Iterator[Sample]:
    """Counters of scrapes and KV events."""
    scraper = feeds.metrics.scraper
    yield Sample("endpoints_never_scraped", (), float(len(scraper.never_scraped())))
    for name, counts in list(scraper.counts.items()):
        yield Sample("scrape_bad_samples", (name,), float(counts.bad_samples))
        for reason, count in list(counts.failures.items()):
            yield Sample("scrape_errors", (name, reason), float(count))
    for name, results in [] if feeds.prober is None else list(feeds.prober.counts.items()):
        for result, count in list(results.items()):
            yield Sample("probes", (name, result), float(count))
    yield Sample("kv_events_warming", (), float(len(feeds.events.warming())))
    for name, counters in feeds.events.counters():
        yield Sample("kv_event_losses", (name,), float(counters.lost))
        yield Sample("kv_events_not_comparable", (name,), float(counters.not_comparable))
        yield Sample("kv_event_batches", (name,), float(counters.batches))
        yield Sample("kv_event_gaps", (name,), float(counters.gaps))
        yield Sample("kv_events_malformed", (name,), float(counters.malformed))


class CountedCalls(Protocol):
    """Handlers that count their calls."""

    calls: CallGate
    streams: CallGate
    ended: Counter[tuple[str, str]]


def call_samples(servicer: CountedCalls) -> Iterator[Sample]:
    """Calls by kind and how they ended."""
    yield Sample("rpcs_in_flight", ("unary",), float(servicer.calls.running))
    yield Sample("rpcs_in_flight", ("stream",), float(servicer.streams.running))
    yield Sample("calls_over_limit", ("unary",), float(servicer.calls.refused))
    yield Sample("calls_over_limit", ("stream",), float(servicer.streams.refused))
    for (method, code), count in list(servicer.ended.items()):
        yield Sample("rpcs", (method, code), float(count))


def reload_samples(files: Sequence[WatchedFile[Any]]) -> Iterator[Sample]:
    """Which files' last change was refused."""
    for file in files:
        yield Sample("reload_failed", (file.what,), float(bool(file.status.errors)))


def log_samples(report: WriteReport) -> Iterator[Sample]:
    """Rows that the log took, and those that it had to drop."""
    for table, rows in zip(("decisions", "outcomes"), report.taken, strict=True):
        yield Sample("log_rows", (table,), float(rows))
    yield Sample("log_dropped_rows", (), float(report.dropped))
