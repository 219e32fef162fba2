"""Ready capacity of each site, summed up from the endpoint table: for the router itself, or for an entry.

A site is as good for a request as the replica that would take it there. So the times of a summary are those of one
replica, the one with the best score by the closed-form prior (docs/tokenpilot.md, equation 6), and the counts are
of all. One compiled pass over the candidates does both.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

import numpy as np

from data.types import FloatArray, IntArray, Slo
from models.feature_rows import RowArguments, put_rows
from models.features import INDEX
from models.jit import compiled
from models.physics import PriorConstants, PriorPredictor, put_quantiles, put_times, time_arguments
from router.candidate_features import CandidateFeatures
from router.endpoints import EndpointTable
from router.pilot_score import PARTS, ScoreArguments, put_scores, score_arguments, upper_z
from router.pilot_score import SCORE as PILOT_SCORE
from router.prefix import EventPrefixIndex
from router.sites.paths import UNLINKED, PathFacts
from router.sites.types import ReadyCapacity, SiteOption
from router.types import FleetView, RouteRequest

TYPICAL_INPUT_TOKENS, TYPICAL_OUTPUT_TOKENS = 1024, 256
"""The request whose best replica stands for a site when nobody in particular asks."""
READY, IDLE, FREE, TAKEN, PLACES, AGE_S, BEST, SCORE = range(8)
TTFT_S, TPOT_S, OWN_S, FIXED_S, P1, P2, BUSY, HIT = range(8, 16)
"""Columns of a summary row: of the whole site, then of its best replica."""
_WIDTH = 16
_COLUMNS = np.array(
    [INDEX[name] for name in ("uncached_tokens", "hit_tokens", "running", "queue_depth", "p0", "p1", "p2",
                              "host_overhead", "metrics_age_s")]
)  # fmt: skip
"""Feature columns that are read; an argument of the compiled code, which would not notice that they moved."""
_PRICES = (1.0, (1.0, 3.0, 2.0), (1.0, 0.05))
"""Prices and spread of the score, as TokenPilot has them by default."""
Prior: TypeAlias = tuple[tuple[IntArray, IntArray, PriorConstants], FloatArray, int, float]
"""The prior as compiled code takes it: its arguments, its quantiles, the median's place, the highest one's z."""


class SiteSummary:
    """Sums up one endpoint table by site.

    Args:
        table: The endpoints; what was derived from their identity is renewed when its version changes.
        load_ceiling: Share of ``max_seqs`` that an endpoint may take, as in the hard filters; ``None`` = all.
    """

    def __init__(self, table: EndpointTable, load_ceiling: float | None = None) -> None:
        self._table = table
        self._ceiling = 1.0 if load_ceiling is None else load_ceiling
        prior = PriorPredictor()
        self._prior: Prior = (
            time_arguments(prior.settings),
            prior.z,
            prior.quantiles.index(0.5),
            upper_z(prior.quantiles),
        )
        self._codes = prior.codes
        self._features = CandidateFeatures(table, prior.codes)
        self._renew()
        if len(table):
            self._warm_up()

    def _renew(self) -> None:
        self._version = self._table.version
        self.names: tuple[str, ...] = tuple(dict.fromkeys(spec.site for spec in self._table.specs))
        place = {name: number for number, name in enumerate(self.names)}
        self._site: IntArray = np.array([place[spec.site] for spec in self._table.specs], dtype=np.int64)

    @property
    def site_of(self) -> IntArray:
        """Place in ``names`` of the site of each row of the table."""
        if self._version != self._table.version:
            self._renew()
        return self._site

    def rows_at(self, site: str, rows: IntArray) -> IntArray:
        """Those of ``rows`` that stand at ``site``."""
        here: IntArray = rows[self.site_of[rows] == self.names.index(site)]
        return here

    def options(
        self,
        request: RouteRequest,
        rows: IntArray,
        view: FleetView,
        paths: Mapping[str, PathFacts],
        home: Collection[str],
    ) -> list[SiteOption]:
        """The sites of the candidates ``rows``, in the order of the table.

        Args:
            request: What is routed.
            rows: Endpoints that have passed every hard filter.
            view: What is known now.
            paths: From the request's origin.
            home: Sites where the request is at home.
        """
        summed = self._sum(request, rows, view)
        return [
            self._option(request.model, summed[place], self.names[place], view.now_s, paths, home)
            for place in np.flatnonzero(summed[:, READY]).tolist()
        ]

    def capacities(self, model: str, rows: IntArray, now_s: float) -> list[ReadyCapacity]:
        """What each site of ``rows`` can do for a typical request of ``model``, for whoever chooses elsewhere.

        Args:
            model: Key of the model that all of ``rows`` serve.
            rows: Its endpoints that take new requests.
            now_s: The clock.
        """
        request = RouteRequest(
            0, model, "", "", "", TYPICAL_INPUT_TOKENS, TYPICAL_OUTPUT_TOKENS,
            float(TYPICAL_OUTPUT_TOKENS), (), 1, "", Slo(),
        )  # fmt: skip
        table = self._table
        view = FleetView(now_s, table, EventPrefixIndex(len(table)), np.zeros(len(table)))
        summed = self._sum(request, rows, view)
        return [
            _capacity(model, summed[place], self.names[place], now_s, counts_own=False)
            for place in np.flatnonzero(summed[:, READY]).tolist()
        ]

    def _option(
        self,
        model: str,
        summed: FloatArray,
        site: str,
        now_s: float,
        paths: Mapping[str, PathFacts],
        home: Collection[str],
    ) -> SiteOption:
        facts, capacity = paths.get(site, UNLINKED), _capacity(model, summed, site, now_s, counts_own=True)
        return SiteOption(
            capacity,
            float(summed[HIT]),
            facts.rtt_s,
            facts.transfer_s_per_token,
            facts.price_per_gb,
            local=site in home,
        )

    def _sum(self, request: RouteRequest, rows: IntArray, view: FleetView) -> FloatArray:
        site, table = self.site_of, self._table
        hits = view.hit_tokens_at(request, rows)
        building = self._features.arguments(request, rows, hits, view, self._codes)
        out = np.zeros((len(self.names), _WIDTH))
        places = (table.inflight, table.max_seqs, self._ceiling)
        scoring = score_arguments(request, *_PRICES)
        _sum_up(building, self._prior, view.rtt_s, scoring, site, places, _COLUMNS, out)
        return out

    def _warm_up(self) -> None:
        """Compile, which the first decision should not wait for."""
        self.capacities("", np.arange(1), 0.0)


def _capacity(model: str, summed: FloatArray, site: str, now_s: float, counts_own: bool) -> ReadyCapacity:
    value = summed.tolist()
    return ReadyCapacity(
        site=site,
        model=model,
        ready=int(value[READY]),
        idle=int(value[IDLE]),
        free_slots=value[FREE],
        load=value[TAKEN] / max(value[PLACES], 1.0),
        queue_s=max(value[TTFT_S] - value[OWN_S] - value[FIXED_S], 0.0),
        fixed_s=value[FIXED_S],
        prefill_s_per_token=value[P1],
        prefill_s_per_token2=value[P2],
        tpot_s=value[TPOT_S],
        busy=value[BUSY],
        at_s=now_s - value[AGE_S],
        counts_own=counts_own,
    )


@compiled
def _sum_up(
    candidates: RowArguments,
    prior: tuple[tuple[IntArray, IntArray, PriorConstants], FloatArray, int, float],
    rtt_s: FloatArray,
    scoring: ScoreArguments,
    site_of: IntArray,
    places: tuple[FloatArray, FloatArray, float],
    columns: IntArray,
    out: FloatArray,
) -> None:
    """Fill ``out``, one row for each site: zero where no candidate stands."""
    put_rows(*candidates)
    rows, features = candidates[1], candidates[10]
    time_args, z, middle, upper = prior
    inflight, max_seqs, ceiling = places
    n = len(rows)
    times, suspect = np.empty((4, n)), np.empty(n, dtype=np.bool_)
    put_times(features, *time_args, times, suspect)
    ttft_s, tpot_s, parts = np.empty((n, len(z))), np.empty((n, len(z))), np.empty((PARTS, n))
    put_quantiles(times[0], times[2], z, ttft_s)
    put_quantiles(times[1], times[3], z, tpot_s)
    put_scores(features, ttft_s, tpot_s, middle, upper, rtt_s[rows], *scoring, parts)
    for place in range(n):
        row, value, total = rows[place], features[place], out[site_of[rows[place]]]
        running, queued, age = value[columns[2]], value[columns[3]], value[columns[8]]
        room = ceiling * max_seqs[row]
        taken = max(inflight[row], running + queued)
        first = total[0] == 0.0
        total[0] += 1.0
        total[1] += 1.0 if queued < 0.5 else 0.0
        total[2] += max(room - taken, 0.0)
        total[3] += taken
        total[4] += room
        total[5] = age if first else min(total[5], age)
        score = parts[PILOT_SCORE, place]
        if first or score > total[7]:
            u, h = value[columns[0]], value[columns[1]]
            p1, p2 = value[columns[5]], value[columns[6]]
            total[6], total[7] = row, score
            total[8], total[9] = ttft_s[place, middle], tpot_s[place, middle]
            total[10] = u * (p1 + p2 * (h + 0.5 * u))
            total[11] = value[columns[4]] + value[columns[7]]
            total[12], total[13] = p1, p2
            total[14], total[15] = running + queued, h
