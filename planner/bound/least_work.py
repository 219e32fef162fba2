"""The least time that a good response takes of one replica, in several readings of the fixed cost of steps.

With ``u`` prompt tokens that nobody can have computed before the request came, ``c`` before them, ``n`` output
tokens, and the coefficients of ``ServiceTimes`` (``w`` = what a step with a decoding sequence costs, its size
aside; ``p`` = what any step costs; ``B`` its token budget, ``M`` its places, ``C`` the KV memory):

(1)  ``prefill = p1·u + p2·u·(c + u/2)``, however it is cut into chunks
(2)  token ``g + 1`` from a decode step: ``d1 + d2·(L + g − 1)``; from a prefill after a preemption, which computes
     at least the ``g`` tokens generated before again: ``g·(p1 + p2·L)`` or more

Each token takes the cheaper of the two. A step is shared, so its fixed cost is charged to what it carries:

(3)  ``budget``: ``p/B`` for each prompt token and each output token after the first
(4)  ``places``: ``w/M`` for each token of a decode step
(5)  ``pace``: the time between two tokens of a response that meets its TPOT target ``P`` is P in the mean, so
     that steps come at that pace whatever their batch. With ``c_i = d1 + d2·L_i`` and any ``v > 0``, the number of
     decode steps is at least ``Σ c_i·((n_i − 1)·(w + 2v) − (n_i − 1)·P_i) / v²`` over good responses: add up
     what each of them waited through, ``Σ_s V_s·(w + V_s) <= Σ c_i·(n_i − 1)·P_i`` with ``V_s`` the sum of c over
     the good members of step s, and ``V² >= 2v·V − v²``.

Each reading alone is a valid price. :func:`least_work` gives all of them; a row of the program uses one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.types import FloatArray
from planner.bound.offer import Offer
from planner.bound.replica_kinds import ReplicaKind
from planner.sim.noise import LEAST_FACTOR
from router.types import BoolArray

DEVIATIONS = 5.0
"""Standard deviations of step noise that the bound leaves room for."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to charge the fixed cost of steps, seconds of a replica; shape (requests,).

    ``token_s`` is the time of a prompt token, without what it takes for each token before it.
    """

    name: str
    token_s: float
    prefill_s: FloatArray
    decode_s: FloatArray


@dataclass(frozen=True, slots=True)
class LeastWork:
    """Of one kind.

    Attributes:
        possible: Whether an empty replica could serve the request well; shape (requests,).
        end_s: Earliest end of a good response; shape (requests,).
        readings: Ways to charge.
        longest_prefill_s, longest_step_s: No step does more prefill, or more of all work, than this.
    """

    possible: BoolArray
    end_s: FloatArray
    readings: tuple[Reading, ...]
    longest_prefill_s: float
    longest_step_s: float


def least_work(kind: ReplicaKind, offer: Offer, noise: float) -> LeastWork:
    """What each request takes of a replica of ``kind`` at least.

    Args:
        kind: The replica.
        offer: The requests.
        noise: Standard deviation of the relative step time.
    """
    seen = offer.seen_tokens if kind.caching else np.zeros_like(offer.seen_tokens)
    fresh = (offer.input_tokens - seen).astype(np.float64)
    more = (offer.output_tokens - 1).astype(np.float64)
    token_s = float(kind.times.p1)
    prefill_s = fresh * (token_s + kind.times.p2 * (seen + fresh / 2))
    served = offer.model == (offer.models.index(kind.model) if kind.model in offer.models else -2)
    tokens = offer.input_tokens + offer.output_tokens
    served &= tokens <= min(kind.kv_tokens, kind.context_tokens)
    longest_prefill_s, longest_s = _longest_steps_s(kind, float(tokens.max(initial=1, where=served)))
    alone_s = prefill_s + kind.prefill_fixed_s * np.ceil(fresh / kind.token_budget)
    first_s = least_real_s(alone_s, noise, longest_prefill_s)
    rest_s = least_real_s(_decode_s(kind, offer, kind.decode_fixed_s, kind.prefill_fixed_s), noise, longest_s)
    # 0 tokens at an infinite target would not be a number.
    span_s = np.where(more > 0, offer.tpot_s, 0.0) * more
    possible = served & (offer.arrival_s + first_s <= offer.first_due_s) & (rest_s <= span_s)
    end_s = offer.arrival_s + first_s + rest_s
    budget_s = kind.prefill_fixed_s / kind.token_budget
    places_s = kind.decode_fixed_s / kind.max_seqs
    readings = [
        Reading(
            "budget", token_s + budget_s, prefill_s + budget_s * fresh, _decode_s(kind, offer, budget_s, budget_s)
        ),
        Reading("places", token_s, prefill_s, _decode_s(kind, offer, places_s, 0.0)),
    ]
    patience_s = most_work_s(span_s, noise, longest_s)
    for pace_s in np.unique(offer.tpot_s[served & np.isfinite(offer.tpot_s) & (more > 0)]).tolist():
        if pace_s > kind.decode_fixed_s:
            decode_s = _paced_decode_s(kind, offer, patience_s, pace_s - kind.decode_fixed_s)
            readings.append(Reading(f"pace {pace_s:g}", token_s, prefill_s, decode_s))
    return LeastWork(possible & (end_s <= offer.end_due_s), end_s, tuple(readings), longest_prefill_s, longest_s)


def most_work_s(time_s: FloatArray, noise: float, longest_step_s: float) -> FloatArray:
    """Work, at mean step times, that steps may do within a time if noise is as kind as it may be.

    Work Q in steps of at most ``longest_step_s`` takes at least Q less ``DEVIATIONS`` standard deviations, where
    the deviation is at most ``noise·sqrt(longest_step_s·Q)`` and ``noise·Q``; and never less than the fifth
    of Q that the simulator allows.
    """
    room = DEVIATIONS * noise * np.sqrt(longest_step_s)
    many = ((room + np.sqrt(room * room + 4.0 * time_s)) / 2.0) ** 2
    found: FloatArray = np.minimum(many, time_s / max(LEAST_FACTOR, 1.0 - DEVIATIONS * noise))
    return found


def least_real_s(work_s: FloatArray, noise: float, longest_step_s: float) -> FloatArray:
    """The inverse: time that work takes at least."""
    many = work_s - DEVIATIONS * noise * np.sqrt(longest_step_s * work_s)
    return np.maximum(many, work_s * max(LEAST_FACTOR, 1.0 - DEVIATIONS * noise))


def _decode_s(kind: ReplicaKind, offer: Offer, decode_s: FloatArray | float, prefill_s: float) -> FloatArray:
    """(2) summed over the tokens after the first, with what a token of either kind is charged besides.

    The sum of least values is at least the sum of the decode steps less ``max(0, a - g*b)`` for each g, where a is
    the dearest decode step and b the price of one token of a prefill.
    """
    times, before = kind.times, offer.input_tokens.astype(np.float64)
    more = (offer.output_tokens - 1).astype(np.float64)
    first_s = times.d1 + times.d2 * before + decode_s
    last_s = first_s + times.d2 * np.maximum(more - 1, 0.0)
    again_s = np.maximum(times.p1 + times.p2 * before, 1e-12)
    dearer_s = np.maximum(last_s - prefill_s, 0.0)
    tokens = np.minimum(more, np.floor(dearer_s / again_s))
    saved_s = tokens * dearer_s - again_s * tokens * (tokens + 1) / 2
    found: FloatArray = np.maximum(more * (first_s + last_s) / 2 - saved_s, 0.0)
    return found


def _paced_decode_s(kind: ReplicaKind, offer: Offer, patience_s: FloatArray, spare_s: float) -> FloatArray:
    """(5) with ``v = spare_s``, for those responses for which it charges more than nothing."""
    fixed_s = kind.decode_fixed_s
    weight = kind.times.d1 + kind.times.d2 * offer.input_tokens.astype(np.float64)
    token_s = weight * fixed_s * (fixed_s + 2.0 * spare_s) / spare_s**2
    with np.errstate(invalid="ignore"):
        paced_s = _decode_s(kind, offer, token_s, 0.0) - weight * patience_s * fixed_s / spare_s**2
    plain_s = _decode_s(kind, offer, 0.0, 0.0)
    return np.fmax(paced_s, plain_s)


def _longest_steps_s(kind: ReplicaKind, context: float) -> tuple[float, float]:
    times = kind.times
    prefill_s = kind.prefill_fixed_s + kind.token_budget * (times.p1 + times.p2 * context)
    decode_s = kind.decode_fixed_s + times.d_sat + kind.max_seqs * (times.d1 + times.d2 * context)
    return prefill_s, prefill_s + decode_s
