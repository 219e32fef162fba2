"""Everything that comes from running engines by itself: load reports, KV events, and the answers to probes."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence

import numpy as np

from data.fleet.types import Endpoint
from router.endpoints import EndpointSpec
from router.feeds.completion_probe import UNHEARD, CompletionProbe, ProbeTarget
from router.feeds.discovery import UNPROBED
from router.feeds.metrics_feed import MetricsFeed
from router.feeds.probe_settings import ProbeSettings
from router.feeds.prober import Prober
from router.feeds.scrape import ScrapeSettings
from router.feeds.stages import Stage
from router.kv_events.apply import FeedSettings
from router.kv_events.fleet_feeds import FleetFeeds
from router.kv_events.subscriber import EventSource, KvEventSubscriber
from router.prefix.snapshot_file import RowSnapshot
from router.serving.live import LiveRouter

LOG = logging.getLogger("tokenfleet.engine_feeds")
_Followed = tuple[Endpoint, EndpointSpec, FeedSettings]


class EngineFeeds:
    """Scrapes and subscribes for a router. Lives on one event loop.

    Args:
        live: The router whose rows are fed.
        scrape: Period, deadline and bounds of the scrapes.
        seed: Of their jitter.
        saved: What an earlier process knew; each row is taken over once its engine has told that it is the same.
        probe: How endpoints that are not ready are probed, and the engines' key or an empty text; ``None`` = they
            are not.
    """

    def __init__(
        self,
        live: LiveRouter,
        scrape: ScrapeSettings,
        seed: int,
        saved: Iterable[RowSnapshot] = (),
        probe: tuple[ProbeSettings, str] | None = None,
    ) -> None:
        rng = np.random.default_rng((seed, 1))
        self._live = live
        self._saved = {row.endpoint_id: row for row in saved}
        self._followed: dict[int, _Followed] = {}
        self._lives: dict[int, str] = {}
        self.metrics = MetricsFeed(live.states, live.rows.row, scrape, live.clock, rng, self._page_came)
        self.events = FleetFeeds(live.index, KvEventSubscriber(), live.credit.stored)
        self.prober: Prober | None = None
        if probe is not None:
            draws = np.random.default_rng((seed, 2))
            asks = CompletionProbe(*probe)
            self.prober = Prober(probe[0], asks, live.proven, self._probe_failed, live.clock, draws)
        live.on_restart.append(self._restarted)

    def apply(self, endpoints: Sequence[Endpoint]) -> None:
        """Follow these engines from now on; after their rows have been applied.

        Raises:
            SettingError: An address is wrong (a checked list has none).
        """
        self.metrics.apply(endpoints)
        self._probe(endpoints)
        wanted: dict[int, _Followed] = {}
        for endpoint in endpoints:
            row = self._live.rows.row(endpoint.id)
            if row is not None and endpoint.kv_events is not None:
                spec = self._live.core.table.specs[row]
                wanted[row] = (endpoint, spec, self._reading(spec))
        before, self._followed = self._followed, wanted
        for row, followed in before.items():
            if wanted.get(row) != followed:
                self._leave(row)
        for row, followed in wanted.items():
            if before.get(row) != followed:
                self._follow(row, followed)

    async def close(self) -> None:
        """Stop everything."""
        if self.prober is not None:
            await self.prober.close()
        await self.metrics.close()
        await self.events.close()

    def _probe(self, endpoints: Sequence[Endpoint]) -> None:
        if self.prober is None:
            return
        table, targets, unproven = self._live.core.table, dict[str, ProbeTarget](), list[str]()
        for endpoint in endpoints:
            row = self._live.rows.row(endpoint.id)
            if row is None or endpoint.engine in UNPROBED:
                continue
            model = endpoint.served_model or table.specs[row].model
            targets[endpoint.id] = ProbeTarget(endpoint.id, endpoint.address, model)
            if not table.ready[row]:
                unproven.append(endpoint.id)
        unprobed = [endpoint.id for endpoint in endpoints if endpoint.engine in UNPROBED]
        if unprobed:
            LOG.warning("not probed, since their API knows no such completions: %s", ", ".join(unprobed))
        self.prober.apply(targets, unproven)

    def _probe_failed(self, endpoint_id: str, reason: str) -> None:
        self._live.stages.came_to(endpoint_id, Stage.LOADING if reason in UNHEARD else Stage.WARMING, reason)

    def _follow(self, row: int, followed: _Followed, saved: RowSnapshot | None = None) -> None:
        endpoint, _, reading = followed
        if reading.hash_source == "tokens":
            self._live.credit.watch(row)
        source = EventSource(endpoint.kv_events or "", endpoint.kv_replay or "")
        dropped = self.events.connect(row, endpoint.id, self._lives.get(row, ""), reading, source, saved)
        if saved is not None:
            what = "taken over" if dropped is None else f"not taken over: another {dropped}"
            LOG.info("saved blocks of %s %s (%d)", endpoint.id, what, len(saved.own))

    def _reading(self, spec: EndpointSpec) -> FeedSettings:
        """How the events of an engine are read."""
        models = {model.key: model for model in self._live.state.fleet.models}
        model = models.get(spec.model)
        return FeedSettings(
            model=spec.model,
            block_tokens=spec.prefix_block_tokens,
            hash_source="tokens" if model is None else model.engine.block_hashes,
            expected_blocks=spec.kv_capacity_tokens // spec.prefix_block_tokens,
        )

    def _leave(self, row: int) -> None:
        """A row is not followed any more: what it holds is guessed from now on, if there still is an endpoint."""
        self._lives.pop(row, None)
        self._live.credit.unwatch(row)
        self.events.guess(row, self._capacity_blocks(row))

    def _restarted(self, row: int) -> None:
        self._lives.pop(row, None)
        self.events.restarted(row)
        if self.prober is not None:
            self.prober.again(self._live.core.table.specs[row].endpoint_id)

    def _page_came(self, row: int) -> None:
        """A page was taken in: now it is known how much the engine can hold, and which life of it this is."""
        if not self._live.core.table.ready[row]:
            self._live.stages.came_to(self._live.core.table.specs[row].endpoint_id, Stage.WARMING)
        followed = self._followed.get(row)
        if followed is None:
            self._live.index.set_capacity(row, self._capacity_blocks(row))
        elif row not in self._lives:
            self._settle(row, followed)

    def _settle(self, row: int, followed: _Followed) -> None:
        endpoint = followed[0]
        started_at_s = self._live.states.started_at_s(row)
        if math.isnan(started_at_s):
            return
        self._lives[row] = f"{endpoint.engine} at {endpoint.address} since {started_at_s:.0f}"
        saved = self._saved.pop(endpoint.id, None)
        if saved is None:
            self.events.known_as(row, self._lives[row])
        else:
            self._follow(row, followed, saved)

    def _capacity_blocks(self, row: int) -> int:
        """Blocks of a row's KV cache: by the engine's own report, else by the fleet file."""
        spec = self._live.core.table.specs[row]
        reported = float(self._live.states.kv_tokens[row])
        tokens = spec.kv_capacity_tokens if math.isnan(reported) else reported
        return max(int(tokens) // spec.prefix_block_tokens, 1)
