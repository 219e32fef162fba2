"""TokenPilot: sends a request where it adds most expected Goodput, after the harm it does there.

For each candidate ``i`` (docs/tokenpilot.md derives the terms):

(1)  ``P_i = P(TTFT_i + rtt_i <= TTFT target) · P(TPOT_i <= TPOT target)``, from log-normals through the predicted
     median and upper quantile, taken as independent; likewise a deadline; absent targets are 1
(2)  ``C_i = rtt_i + TTFT_i + n·TPOT_i``            completion time, ``n`` the expected output tokens
(3)  ``S_i = p1·u_i + p2·u_i·(h_i + u_i/2)``        prefill time that the request takes from the others there
(4)  ``D_i = n·(d1 + d2·(L + n/2))``                time that it adds to their decode steps
(5)  ``X_i = S_i·(r_i + q_i) + D_i·r_i``            seconds of delay laid on the requests already there
(6)  ``K_i = w·n·r_i·(P(TPOT_i <= target) − P(TPOT_i + (S_i + D_i)/n <= target))``      tokens that they lose by it
(7)  ``score_i = w·n·P_i − l·K_i − w·n·a·(C_i + b·X_i + c·u_i·min_j(p1_j + p2_j·L/2))/T``

``T`` is the time that the targets allow for the whole request, so ``a`` prices lateness in shares of it. Where all
are safe, or none is, ``P_i`` are equal and ``K_i`` is 0, and (7) orders by completion time plus the delay laid on
others; there is no switch. The last term prices the cached blocks that the uncached ones push out, at what they
would cost on the fastest candidate: at each one's own speed, slow GPUs would leave their memory empty. Near ties
of the best score go to the longest reusable prefix, then to a seeded draw.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.types import FloatArray, IntArray, Slo
from models.base import LatencyPredictor
from models.feature_rows import put_rows
from models.features import INDEX
from models.physics import PriorPredictor, PriorSettings
from models.signals import SignalSettings
from router.candidate_features import CandidateFeatures
from router.endpoints import EndpointTable
from router.pilot_decision import CandidateScore, LastDecision, Scored, candidate_score, last_decision
from router.pilot_score import PRICE, SCORE, ScoreArguments, score_arguments, score_parts, worth_of
from router.pilot_stages import FirstStage, near_best, second_stage
from router.policies.base import PolicyBase, PolicyContext, PolicyEntry
from router.policies.settings import Checked, above, at_least, between, flag, whole
from router.prefix import EventPrefixIndex
from router.types import FleetView, RouteRequest

_HIT_AND_AGE = (INDEX["hit_tokens"], INDEX["metrics_age_s"])


@dataclass(frozen=True, slots=True)
class TokenPilotSettings(Checked):
    """Settings of TokenPilot; the letters are those of equation (7).

    Attributes:
        delay_price: ``a``: worth of the whole allowed time, as a share of the request's tokens.
        harm_price: ``b``: seconds of others against own seconds.
        eviction_price: ``c``: times that a block pushed out would have been used again.
        loss_price: ``l``: tokens that others lose against own tokens.
        reuse: Whether cached prefixes count; off for engines that keep none.
        forest_candidates: The predictor scores this many candidates, the best by the prior.
        forest_holders: ... and this many of the longest prefix holders.
        near_tie: Scores this close count as equal, as a share of the best one's price or of the request's tokens.
        spread_factor: On the predicted spread of times; 0 = the medians are taken as sure.
        least_spread: Standard deviation of log time that is assumed at least.
    """

    delay_price: float = above(0.0, 1.0)
    harm_price: float = at_least(0.0, 1.0)
    eviction_price: float = at_least(0.0, 3.0)
    loss_price: float = at_least(0.0, 2.0)
    reuse: bool = flag(True)
    forest_candidates: int = whole(1, 22)
    forest_holders: int = whole(0, 2)
    near_tie: float = between(0.0, 0.5, 0.01)
    spread_factor: float = at_least(0.0, 1.0)
    least_spread: float = above(0.0, 0.05)


class TokenPilot(PolicyBase):
    """The policy; without a trained model the closed-form prior predicts.

    Args:
        settings: Prices and widths.
        context: Table, seed and predictor.
        prior: Constants of the prior that ranks all candidates in the first stage.
        signals: How reports fade.
    """

    name = "tokenpilot"

    def __init__(
        self,
        settings: TokenPilotSettings,
        context: PolicyContext,
        prior: PriorSettings | None = None,
        signals: SignalSettings | None = None,
    ) -> None:
        super().__init__(context)
        self.settings = settings
        self.predictor: LatencyPredictor = context.predictor or PriorPredictor()
        self.last_decision: LastDecision | None = None
        self._first = FirstStage(PriorPredictor(prior), settings.forest_candidates, settings.forest_holders)
        self._features = CandidateFeatures(context.table, self.predictor.codes, signals)
        if len(context.table):
            self._warm_up(context.table)

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:
        """The candidate with the greatest score (7), near ties as the module says.

        The prior's answers, too, go through the whole score. Ranked by completion time alone, the best one of 60
        was left out four times as often: beyond a target a second is worth far more than below it.
        """
        hits = self._hits(request, candidates, view)
        building = self._features.arguments(request, candidates, hits, view, self.predictor.codes)
        features, rows, arguments = building[-1], candidates, self._score_arguments(request)
        if len(candidates) <= self.settings.forest_candidates + self.settings.forest_holders:
            put_rows(*building)
        else:
            keep = self._first.kept(building, view.rtt_s, hits, arguments)
            features, rows = features.take(keep, axis=0), candidates.take(keep)
        prediction = self.predictor.predict(features)
        near, newest_age_s = second_stage(
            features, prediction, view.rtt_s, rows, _HIT_AND_AGE, self.settings.near_tie, arguments
        )
        best = self.pick(near)
        chosen = int(rows[best])
        self.last_decision = last_decision(request, chosen, prediction, best, newest_age_s, len(candidates))
        return chosen

    def explain(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> list[CandidateScore]:
        """Every candidate's features, predictions and parts of the score, best first.

        All candidates go through the predictor here. Nothing is changed and nothing drawn: of several near ties
        with the same prefix the first is marked as chosen.
        """
        hits, codes = self._hits(request, candidates, view), self.predictor.codes
        features = self._features.build(request, candidates, hits, view, codes)
        prediction, rtt_s = self.predictor.predict(features), view.rtt_s[candidates]
        parts = score_parts(features, prediction, rtt_s, self._score_arguments(request))
        near = near_best(parts[SCORE], parts[PRICE], hits, self.settings.near_tie, worth_of(request))
        order = np.argsort(-parts[SCORE], kind="stable").tolist()
        scored = Scored(candidates, features, prediction, rtt_s, parts)
        return [candidate_score(scored, position, position == near[0]) for position in order]

    def _warm_up(self, table: EndpointTable) -> None:
        """Compile both stages, which the first decision should not wait for."""
        request = RouteRequest(0, "", "", "", "", 1, 1, 1.0, (), 1, "", Slo())
        rows, rtt_s, arguments = np.arange(1), np.zeros(len(table)), self._score_arguments(request)
        view = FleetView(0.0, table, EventPrefixIndex(len(table)), rtt_s)
        building = self._features.arguments(request, rows, np.zeros(1), view, self.predictor.codes)
        self._first.warm_up(building, rtt_s, arguments)
        features = building[-1]
        second_stage(features, PriorPredictor().predict(features), rtt_s, rows, _HIT_AND_AGE, 0.0, arguments)

    def _hits(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> FloatArray:
        if self.settings.reuse:
            return view.hit_tokens_at(request, candidates)
        return np.zeros(len(candidates))

    def _score_arguments(self, request: RouteRequest) -> ScoreArguments:
        settings = self.settings
        prices = (settings.harm_price, settings.eviction_price, settings.loss_price)
        return score_arguments(
            request, settings.delay_price, prices, (settings.spread_factor, settings.least_spread)
        )


ENTRY = PolicyEntry(
    name=TokenPilot.name,
    summary="Most expected Goodput: tokens · P(meets targets), less those that others lose and a price for delay.",
    sees="block events, reports with their age, own in-flight work, service times, a latency predictor",
    source="TokenFleet",
    ties="random",
    settings=TokenPilotSettings,
    factory=TokenPilot,
    grid={
        "delay_price": (0.5, 1.0, 3.0),
        "harm_price": (0.5, 1.0),
        "eviction_price": (1.0, 3.0, 10.0),
        "loss_price": (1.0, 2.0),
    },
)
