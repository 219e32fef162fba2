"""TokenPilot's two stages in compiled code: which candidates are kept, and which of those are near ties.

The first stage goes from the table's columns to the score of every candidate by the prior in one call; the second
takes what the predictor answered for those that were kept.
"""

from __future__ import annotations

import numpy as np

from data.types import FloatArray, IntArray
from models.base import FeatureMatrix, Prediction
from models.feature_rows import RowArguments, put_rows
from models.jit import compiled
from models.physics import PriorConstants, PriorPredictor, put_quantiles, put_times, time_arguments
from router.pilot_score import PARTS, PRICE, SCORE, ScoreArguments, put_scores, upper_z


class FirstStage:
    """Ranks all candidates by the prior.

    Args:
        prior: Its constants and quantiles.
        most: Candidates that are kept, the best by the score.
        holders: ... and of the longest prefixes.
    """

    def __init__(self, prior: PriorPredictor, most: int, holders: int) -> None:
        self._prior = (
            time_arguments(prior.settings),
            prior.z,
            prior.quantiles.index(0.5),
            upper_z(prior.quantiles),
        )
        self._most = most
        self._holders = holders

    def kept(
        self, candidates: RowArguments, rtt_s: FloatArray, hits: FloatArray, arguments: ScoreArguments
    ) -> IntArray:
        """Positions worth a full prediction; fills the feature rows of all candidates on the way.

        There must be more candidates than are kept.

        Args:
            candidates: How their feature rows are made.
            rtt_s: Round trip to every endpoint of the table.
            hits: Predicted prefix-hit tokens of each candidate.
            arguments: Of the score.
        """
        loss = self._losses(candidates, rtt_s, arguments)
        keep: IntArray = np.argpartition(loss, self._most)[: self._most]
        if self._holders and hits.any():
            keep = _in_either(keep, np.argpartition(-hits, self._holders)[: self._holders], len(hits))
        return keep

    def warm_up(self, candidates: RowArguments, rtt_s: FloatArray, arguments: ScoreArguments) -> None:
        """Compile with arguments like those of a decision."""
        self._losses(candidates, rtt_s, arguments)
        _in_either(np.arange(1), np.arange(1), 1)

    def _losses(self, candidates: RowArguments, rtt_s: FloatArray, arguments: ScoreArguments) -> FloatArray:
        return _losses(candidates, self._prior, rtt_s, arguments)


@compiled
def _losses(
    candidates: RowArguments,
    prior: tuple[tuple[IntArray, IntArray, PriorConstants], FloatArray, int, float],
    rtt_s: FloatArray,
    arguments: ScoreArguments,
) -> FloatArray:
    """The score by the prior with its sign turned, so that the least is the best."""
    put_rows(*candidates)
    rows, features = candidates[1], candidates[10]
    time_args, z, middle, upper = prior
    n = len(rows)
    times, suspect = np.empty((4, n)), np.empty(n, dtype=np.bool_)
    put_times(features, *time_args, times, suspect)
    ttft_s, tpot_s, parts = np.empty((n, len(z))), np.empty((n, len(z))), np.empty((PARTS, n))
    put_quantiles(times[0], times[2], z, ttft_s)
    put_quantiles(times[1], times[3], z, tpot_s)
    put_scores(features, ttft_s, tpot_s, middle, upper, rtt_s[rows], *arguments, parts)
    losses: FloatArray = -parts[SCORE]
    return losses


@compiled
def _in_either(some: IntArray, others: IntArray, below: int) -> IntArray:
    """The numbers in either array, each once and ascending, all of them less than ``below``."""
    member = np.zeros(below, dtype=np.bool_)
    for one in some:
        member[one] = True
    for one in others:
        member[one] = True
    return np.flatnonzero(member)


def second_stage(
    features: FeatureMatrix,
    prediction: Prediction,
    rtt_s: FloatArray,
    rows: IntArray,
    columns: tuple[int, int],
    near_tie: float,
    arguments: ScoreArguments,
) -> tuple[IntArray, float]:
    """Positions of the longest holders among the near ties of the best, and the age of the newest report.

    Args:
        features: Feature rows of the kept candidates.
        prediction: The predictor's answer for them.
        rtt_s: Round trip to every endpoint of the table.
        rows: Their rows of the table.
        columns: Of hits and of the reports' age in a feature row.
        near_tie: Share of the best one's price, or of the request's worth, within which scores count as equal.
        arguments: Of the score.
    """
    middle, z = prediction.median_column, upper_z(prediction.quantiles)
    return _second(
        features, prediction.ttft_s, prediction.tpot_s, middle, z, rtt_s, rows, columns, near_tie, arguments
    )


@compiled
def _second(
    features: FeatureMatrix,
    ttft_s: FloatArray,
    tpot_s: FloatArray,
    middle: int,
    z: float,
    rtt_s: FloatArray,
    rows: IntArray,
    columns: tuple[int, int],
    near_tie: float,
    arguments: ScoreArguments,
) -> tuple[IntArray, float]:
    parts = np.empty((PARTS, len(rows)))
    put_scores(features, ttft_s, tpot_s, middle, z, rtt_s[rows], *arguments, parts)
    hit_column, age_column = columns
    near = near_best(parts[SCORE], parts[PRICE], features[:, hit_column], near_tie, arguments[0][2])
    return near, features[:, age_column].min()


@compiled
def near_best(score: FloatArray, price: FloatArray, hits: FloatArray, near_tie: float, worth: float) -> IntArray:
    """Positions of the longest prefix holders among the near ties of the best score, ascending.

    With loose targets all prices are small against the worth, and only they tell candidates apart: so a tie is as
    near as the lesser of both allows.
    """
    best = np.argmax(score)
    least = score[best] - near_tie * min(worth, price[best])
    longest = 0.0
    for place in range(len(score)):
        if score[place] >= least:
            longest = max(longest, hits[place])
    return np.flatnonzero((score >= least) & (hits == longest))
