"""The cost of serving a request at a site, in seconds.

With ``L`` prompt tokens, ``h`` of them cached there, ``u = L - h`` not, ``n`` expected output tokens, and the
figures of the site's :class:`~router.sites.types.ReadyCapacity`:

(1)  ``N = rtt + transfer·L``                       network
(2)  ``Q = queue``                                  wait; see :func:`queue_s` where the report misses own work
(3)  ``S(u) = p1·u + p2·u·(h + u/2)``               prefill of what is not cached
(4)  ``K = fixed + S(u) + n·tpot``                  compute
(5)  ``H = b·S(u)·busy``                            delay laid on the requests already there
(6)  ``G = (σ − 1)·(Q + K)``                        slowness ``σ`` learned from what was observed
(7)  ``M = P(N + σ·(Q + fixed + S(u)) <= TTFT target)·P(σ·tpot <= TPOT target)``, or of the deadline
(8)  ``V = T·(1 − M)``                              missing the targets, ``T`` the time that they allow in all
(9)  ``P = money·(price_per_gb·4·(L + n)/1e9 + price_per_token·n)``
(10) ``cost = N + Q + K + H + G + V + P + s·T·(sent share − planned share)``

Less a bonus at home, see :mod:`router.sites.fleetmind`. (7) and (8) are those of TokenPilot (docs/tokenpilot.md),
so that both agree on what a second is worth. An old report widens the distribution in (7): the site is less
certain, not fuller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from router.pilot_score import Targets, allowed_s, expected_tokens, meets_targets
from router.sites.paths import BYTES_PER_TOKEN
from router.sites.settings import FleetMindSettings
from router.sites.types import SiteOption
from router.types import RouteRequest

Z90 = 1.2816
"""Standard normal quantile of 0.9, the upper level of the predicted times."""
MOST_WIDENED = 4.0
SPREAD = (1.0, 0.01)
"""Factor on the spread of times, and its least value."""
HEAD_FLOOR = 0.1
"""Share of a reported queue that is left at least, however old the report is."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the cost needs to know of a request."""

    input_tokens: float
    output_tokens: float
    allowed_s: float
    targets: Targets


@dataclass(slots=True)
class Parts:
    """The terms of (10) at one site, seconds; ``share_s`` and ``stay_s`` are put in by the rule.

    Attributes:
        ttft_s: Predicted time to first token, network included, without slowness.
        prefill_s: ``S(u)``.
        meets: ``M``.
    """

    network_s: float
    queue_s: float
    compute_s: float
    saved_s: float
    harm_s: float
    slow_s: float
    late_s: float
    price_s: float
    ttft_s: float
    prefill_s: float
    meets: float

    @property
    def total_s(self) -> float:
        """Their sum."""
        return (
            self.network_s + self.queue_s + self.compute_s + self.harm_s + self.slow_s + self.late_s + self.price_s
        )


def asked_of(request: RouteRequest) -> Asked:
    """The figures of a request."""
    slo = request.slo
    targets = (
        math.nan if slo.ttft_s is None else slo.ttft_s,
        math.nan if slo.tpot_s is None else slo.tpot_s,
        math.nan if slo.deadline_s is None else slo.deadline_s,
    )
    return Asked(float(request.input_tokens), expected_tokens(request), allowed_s(request), targets)


def queue_s(option: SiteOption, unreported_s: float, age_s: float) -> float:
    """(2): the reported wait, plus own work that the report misses, less the time that has passed since it."""
    capacity = option.capacity
    if capacity.counts_own:
        return capacity.queue_s
    ahead = capacity.queue_s + unreported_s / max(capacity.ready, 1)
    return max(ahead - age_s, HEAD_FLOOR * ahead)


def parts_of(
    option: SiteOption,
    asked: Asked,
    hit_tokens: float,
    wait_s: float,
    slowness: float,
    age_s: float,
    settings: FleetMindSettings,
) -> Parts:
    """Equations (1) to (9) at one site.

    Args:
        option: The site.
        asked: Of the request.
        hit_tokens: ``h``, within [0, prompt tokens].
        wait_s: ``Q``.
        slowness: ``σ``, 1 or more.
        age_s: Age of the site's report.
        settings: Prices and spread.
    """
    capacity, n = option.capacity, asked.output_tokens
    p1, p2 = capacity.prefill_s_per_token, capacity.prefill_s_per_token2
    uncached = asked.input_tokens - hit_tokens
    network = option.rtt_s + option.transfer_s_per_token * asked.input_tokens
    prefill = uncached * (p1 + p2 * (hit_tokens + 0.5 * uncached))
    whole = asked.input_tokens * (p1 + p2 * 0.5 * asked.input_tokens)
    compute = capacity.fixed_s + prefill + n * capacity.tpot_s
    first = wait_s + capacity.fixed_s + prefill
    wide = math.exp(Z90 * settings.spread * min(1.0 + age_s / settings.stale_s, MOST_WIDENED))
    ttft, tpot = max(slowness * first, 1e-6), max(slowness * capacity.tpot_s, 1e-6)
    meets = meets_targets(asked.targets, (ttft, ttft * wide), (tpot, tpot * wide), network, n, Z90, SPREAD)
    money = option.price_per_gb * BYTES_PER_TOKEN * (asked.input_tokens + n) / 1e9 + option.price_per_token * n
    return Parts(
        network_s=network,
        queue_s=wait_s,
        compute_s=compute,
        saved_s=whole - prefill,
        harm_s=settings.harm_price * prefill * capacity.busy,
        slow_s=(slowness - 1.0) * (wait_s + compute),
        late_s=asked.allowed_s * (1.0 - meets),
        price_s=settings.price_s * money,
        ttft_s=network + first,
        prefill_s=prefill,
        meets=meets,
    )
