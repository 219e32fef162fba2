"""What TokenPilot keeps and tells of a decision: scores of the candidates, and the line for the log."""

from __future__ import annotations

from dataclasses import dataclass

from data.types import FloatArray, IntArray
from models.base import FeatureMatrix, Prediction
from models.features import NAMES
from router.pilot_score import COMPLETION_S, HARM_S, LOST, MEETS, PRICE, SCORE, VALUE
from router.types import RouteRequest

STALE_S = 2.0
"""When even the newest report of all candidates is older than this, the decision says ``stale_metrics``."""


@dataclass(frozen=True, slots=True)
class Scored:
    """Scores of the candidates that reached the second stage, aligned with ``rows``.

    Attributes:
        rtt_s: Round trip to each.
        parts: See ``router.pilot_score.score_parts``.
    """

    rows: IntArray
    features: FeatureMatrix
    prediction: Prediction
    rtt_s: FloatArray
    parts: FloatArray


@dataclass(frozen=True, slots=True)
class CandidateScore:
    """Why a candidate ranks where it does. Times in seconds; ``score`` and its parts in weighted output tokens.

    ``ttft_upper_s`` and ``tpot_upper_s`` are at the highest predicted quantile, ``upper_quantile``.
    """

    endpoint: int
    features: dict[str, float]
    ttft_p50_s: float
    ttft_upper_s: float
    tpot_p50_s: float
    tpot_upper_s: float
    upper_quantile: float
    source: str
    extrapolated: bool
    rtt_s: float
    meets_targets: float
    completion_s: float
    harm_s: float
    lost_tokens: float
    value: float
    price: float
    score: float
    chosen: bool


@dataclass(frozen=True, slots=True)
class LastDecision:
    """What the log keeps of the latest decision: the prediction for the chosen endpoint and its maker.

    A quantile that the predictor did not give is ``None``, never 0.
    """

    request_id: int
    endpoint: int
    ttft_p50_s: float
    ttft_p90_s: float | None
    tpot_p50_s: float
    tpot_p90_s: float | None
    model_version: str
    candidates: int
    degraded: str | None


def last_decision(
    request: RouteRequest, endpoint: int, prediction: Prediction, best: int, newest_age_s: float, candidates: int
) -> LastDecision:
    """The line for the log.

    Args:
        request: What was routed.
        endpoint: Where to, a row of the table.
        prediction: What the predictor answered.
        best: Position of the endpoint in it.
        newest_age_s: Age of the newest report among the candidates that reached the second stage.
        candidates: Endpoints to choose from.
    """
    middle = prediction.median_column
    upper = prediction.quantiles.index(0.9) if 0.9 in prediction.quantiles else None
    ttft_s, tpot_s = prediction.ttft_s[best].tolist(), prediction.tpot_s[best].tolist()
    return LastDecision(
        request.request_id,
        endpoint,
        ttft_p50_s=ttft_s[middle],
        ttft_p90_s=None if upper is None else ttft_s[upper],
        tpot_p50_s=tpot_s[middle],
        tpot_p90_s=None if upper is None else tpot_s[upper],
        model_version=prediction.row_source(best),
        candidates=candidates,
        degraded=_degraded(newest_age_s, prediction.is_drifted(best)),
    )


def _degraded(newest_age_s: float, drifted: bool) -> str | None:
    """What the decision had to do without, worst first."""
    if newest_age_s > STALE_S:
        return "stale_metrics"
    return "drift" if drifted else None


def candidate_score(scored: Scored, position: int, chosen: bool) -> CandidateScore:
    """One candidate of ``scored`` as plain values."""
    prediction = scored.prediction
    middle = prediction.median_column
    outside = prediction.extrapolated
    return CandidateScore(
        endpoint=int(scored.rows[position]),
        features=dict(zip(NAMES, scored.features[position].tolist(), strict=True)),
        ttft_p50_s=float(prediction.ttft_s[position, middle]),
        ttft_upper_s=float(prediction.ttft_s[position, -1]),
        tpot_p50_s=float(prediction.tpot_s[position, middle]),
        tpot_upper_s=float(prediction.tpot_s[position, -1]),
        upper_quantile=prediction.quantiles[-1],
        source=prediction.source,
        extrapolated=bool(outside[position]) if outside is not None else False,
        rtt_s=float(scored.rtt_s[position]),
        meets_targets=float(scored.parts[MEETS, position]),
        completion_s=float(scored.parts[COMPLETION_S, position]),
        harm_s=float(scored.parts[HARM_S, position]),
        lost_tokens=float(scored.parts[LOST, position]),
        value=float(scored.parts[VALUE, position]),
        price=float(scored.parts[PRICE, position]),
        score=float(scored.parts[SCORE, position]),
        chosen=chosen,
    )
