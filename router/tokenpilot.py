"""TokenPilot: sends a request where it adds most expected Goodput, after the harm it does there.

For each candidate ``i`` (docs/tokenpilot.md derives the terms):

(1)  ``P_i = P(TTFT_i + rtt_i <= TTFT target) · P(TPOT_i <= TPOT target)``, from log-normals through the predicted
     median and upper quantile, taken as independent; likewise a deadline; absent targets are 1
(2)  ``C_i = rtt_i + TTFT_i + n·TPOT_i``            completion time, ``n`` the expected output tokens
(3)  ``S_i = p1·u_i + p2·u_i·(h_i + u_i/2)``        prefill time that the request takes from the others there
(4)  ``D_i = n·(d1 + d2·(L + n/2))``                time that it adds to their decode steps
(5)  ``X_i = S_i·(r_i + q_i) + D_i·r_i``            seconds of delay laid on the requests already there
(6)  ``score_i = w·n·(P_i − a·(C_i + b·X_i + c·p1·u_i)/T)``

``T`` is the time that the targets allow for the whole request, so ``a`` prices lateness in shares of it. Where all
``P_i`` are equal (all candidates safe, or none), (6) orders by completion time plus the delay laid on others;
there is no switch. The last term prices the cached blocks that the uncached ones push out. Near ties of the best
score go to the longest reusable prefix, then to a seeded draw.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.types import IntArray
from models.base import FeatureMatrix, LatencyPredictor, Prediction
from models.features import INDEX
from models.physics import PriorPredictor, PriorSettings
from models.signals import SignalSettings
from router.candidate_features import CandidateFeatures
from router.pilot_decision import CandidateScore, LastDecision, Scored, candidate_score, last_decision
from router.pilot_score import (
    allowed_s,
    completion_s,
    eviction_s,
    expected_tokens,
    harm_s,
    meets_targets,
)
from router.policies.base import PolicyBase, PolicyContext, PolicyEntry
from router.policies.settings import Checked, above, at_least, between, whole
from router.types import FleetView, RouteRequest


@dataclass(frozen=True, slots=True)
class TokenPilotSettings(Checked):
    """Settings of TokenPilot; the letters are those of equation (6).

    Attributes:
        delay_price: ``a``: worth of the whole allowed time, as a share of the request's tokens.
        harm_price: ``b``: seconds of others against own seconds.
        eviction_price: ``c``: times that a block pushed out would have been used again.
        forest_candidates: The predictor scores this many candidates, the best by the prior.
        forest_holders: ... and this many of the longest prefix holders.
        near_tie: Scores this close count as equal, as a share of the best one's price or of the request's tokens.
        least_spread: Standard deviation of log time that is assumed at least.
    """

    delay_price: float = above(0.0, 1.0)
    harm_price: float = at_least(0.0, 1.0)
    eviction_price: float = at_least(0.0, 3.0)
    forest_candidates: int = whole(1, 22)
    forest_holders: int = whole(0, 2)
    near_tie: float = between(0.0, 0.5, 0.01)
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
        self._prior = PriorPredictor(prior)
        self._features = CandidateFeatures(context.table, self.predictor.codes, signals)

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:
        """The candidate with the greatest score (6), near ties as the module says."""
        features = self._rows(request, candidates, view)
        keep = self._first_stage(request, candidates, features, view)
        if keep is None:
            scored = self._second_stage(request, candidates, features, view)
        else:
            scored = self._second_stage(request, candidates[keep], features[keep], view)
        best = self.pick(self._near_best(request, scored))
        self.last_decision = last_decision(request, scored, best, len(candidates))
        return int(scored.rows[best])

    def explain(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> list[CandidateScore]:
        """Every candidate's features, predictions and parts of the score, best first.

        All candidates go through the predictor here. Nothing is changed and nothing drawn: of several near ties
        with the same prefix the first is marked as chosen.
        """
        scored = self._second_stage(request, candidates, self._rows(request, candidates, view), view)
        chosen = int(self._near_best(request, scored)[0])
        order = np.argsort(-scored.score, kind="stable").tolist()
        return [candidate_score(scored, position, position == chosen) for position in order]

    def _rows(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> FeatureMatrix:
        hits = view.hit_tokens(request)[candidates]
        return self._features.build(request, candidates, hits, view, self.predictor.codes)

    def _first_stage(
        self, request: RouteRequest, candidates: IntArray, features: FeatureMatrix, view: FleetView
    ) -> IntArray | None:
        """Positions worth a full prediction: the best by the prior and the longest holders; ``None`` = all.

        The prior's answers go through the whole score. Ranked by completion time alone, the best one of 60 was
        left out four times as often: beyond a target a second is worth far more than below it.
        """
        most, holders = self.settings.forest_candidates, self.settings.forest_holders
        if len(candidates) <= most + holders:
            return None
        guess = self._scored(request, candidates, features, self._prior.predict(features), view)
        keep: IntArray = np.argpartition(-guess.score, most)[:most]
        hits = features[:, INDEX["hit_tokens"]]
        if holders and hits.any():
            keep = np.union1d(keep, np.argpartition(-hits, holders)[:holders])
        return keep

    def _second_stage(
        self, request: RouteRequest, rows: IntArray, features: FeatureMatrix, view: FleetView
    ) -> Scored:
        """The score of ``rows`` by the predictor."""
        return self._scored(request, rows, features, self.predictor.predict(features), view)

    def _scored(
        self,
        request: RouteRequest,
        rows: IntArray,
        features: FeatureMatrix,
        prediction: Prediction,
        view: FleetView,
    ) -> Scored:
        """Equation (6) for ``rows``."""
        settings = self.settings
        middle = prediction.median_column
        rtt = view.rtt_s[rows]
        done = completion_s(request, rtt, prediction.ttft_s[:, middle], prediction.tpot_s[:, middle])
        meets = meets_targets(request, prediction, rtt, settings.least_spread)
        harm = harm_s(request, features)
        seconds = done + settings.harm_price * harm + settings.eviction_price * eviction_s(features)
        worth = request.weight * expected_tokens(request)
        value = worth * meets
        price = worth * settings.delay_price / allowed_s(request) * seconds
        return Scored(
            rows=rows,
            features=features,
            prediction=prediction,
            rtt_s=rtt,
            meets=meets,
            completion_s=done,
            harm_s=harm,
            value=value,
            price=price,
            score=value - price,
        )

    def _near_best(self, request: RouteRequest, scored: Scored) -> IntArray:
        """Positions of the longest prefix holders among the near ties of the best."""
        best = int(scored.score.argmax())
        worth = request.weight * expected_tokens(request)
        # With loose targets all prices are small against the worth, and only they tell candidates apart.
        margin = self.settings.near_tie * min(worth, float(scored.price[best]))
        near = np.flatnonzero(scored.score >= scored.score[best] - margin)
        hits = scored.features[near, INDEX["hit_tokens"]]
        longest: IntArray = near[hits == hits.max()]
        return longest


ENTRY = PolicyEntry(
    name=TokenPilot.name,
    summary="Most expected Goodput: tokens · P(meets targets), less a price for delay to itself and to others.",
    sees="block events, reports with their age, own in-flight work, service times, a latency predictor",
    source="TokenFleet",
    ties="random",
    settings=TokenPilotSettings,
    factory=TokenPilot,
    grid={
        "delay_price": (0.3, 1.0, 2.0),
        "harm_price": (0.3, 1.0, 2.0),
        "eviction_price": (0.0, 3.0),
    },
)
