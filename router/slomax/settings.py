"""The knobs of SLOMax on line; docs/slomax.md tells how to set them."""

from __future__ import annotations

from dataclasses import dataclass

from router.policies.settings import Checked, above, at_least, between, flag, whole


@dataclass(frozen=True, slots=True)
class SloMaxSettings(Checked):
    """Settings of queues, gate, admission and budgets.

    Attributes:
        backlog_s: Prefill seconds that may wait at an engine when the tightest class sends there more.
        ceiling_step: Each looser class may fill this share of what the next tighter one may (0 to 1).
        long_prefill_s: A prefill of at least this many seconds counts as long.
        long_at_once: Long prefills in progress at one replica.
        reserve: Share of a pool's replicas kept free of long prefills.
        pace: Whether prefill leaves decode the time that the tightest TPOT target needs.
        pace_burst_s: Prefill seconds that may run ahead of that pace.
        tpot_margin: Share of the TPOT target that is planned to be used.
        kv_ceiling: Share of KV memory that may be filled.
        ttft_margin: A request is sent where its predicted TTFT is within this share of what is left of its target.
        shield: Share of the tightest TPOT target that an answer in progress may use, however soon it ends: no long
            prefill goes where it would take more, and no prefill at all where it would take more than six tenths
            of that of an answer of the guaranteed tier; 0 = none is held back for that.
        floor_share: Share of the work that each class gets at least while it waits.
        late_share: The same of the late ones, all classes together.
        decode_price: Work of one expected output token, in uncached prompt tokens.
        max_ttl_s: Longest wait of any request.
        queue_requests: Most requests in one queue (model and class).
        queue_tokens: Most prompt tokens in one queue.
        queue_wait_s: Longest predicted wait of a queue that still takes requests.
        refuse_below: Probability to meet its targets below which a class that refuses the hopeless turns a request
            of the standard tier away; half of it for the guaranteed tier, one and a half for best effort.
        shed: Whether such a class turns requests of the other tiers away with the probability that they miss, even
            above that.
        budget_share: Share of each tenant's budgets that this router grants; 1/n with n routers.
        budget_burst_s: A tenant may use this many seconds of its budget at once.
        guarantee_burst_s: The same of its guarantee.
        lease_s: A reservation that nobody settles is given up after this long.
        boost_s: A returned request counts as this much more urgent for each return, three times at most.
        demote: Whether requests that can no longer meet their target wait behind all that can.
    """

    backlog_s: float = above(0.0, 0.4)
    ceiling_step: float = between(0.0, 1.0, 0.4)
    long_prefill_s: float = above(0.0, 0.3)
    long_at_once: int = whole(1, 1)
    reserve: float = between(0.0, 0.9, 0.25)
    pace: bool = flag(True)
    pace_burst_s: float = above(0.0, 0.5)
    tpot_margin: float = between(0.1, 1.0, 0.7)
    shield: float = between(0.0, 1.0, 0.85)
    kv_ceiling: float = between(0.1, 1.0, 0.95)
    ttft_margin: float = between(0.1, 1.0, 1.0)
    floor_share: float = between(0.0, 0.2, 0.03)
    late_share: float = between(0.0, 0.2, 0.03)
    decode_price: float = at_least(0.0, 4.0)
    max_ttl_s: float = above(0.0, 3600.0)
    queue_requests: int = whole(1, 100_000)
    queue_tokens: int = whole(1, 2_000_000_000)
    queue_wait_s: float = above(0.0, 3600.0)
    refuse_below: float = between(0.0, 0.6, 0.1)
    shed: bool = flag(True)
    budget_share: float = between(0.001, 1.0, 1.0)
    budget_burst_s: float = above(0.0, 30.0)
    guarantee_burst_s: float = above(0.0, 10.0)
    lease_s: float = above(0.0, 1800.0)
    boost_s: float = at_least(0.0, 0.5)
    demote: bool = flag(True)
