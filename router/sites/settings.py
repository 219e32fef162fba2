"""The knobs of site choice; docs/sites.md tells how to set them."""

from __future__ import annotations

from dataclasses import dataclass

from router.policies.settings import Checked, above, at_least, between, whole


@dataclass(frozen=True, slots=True)
class FleetMindSettings(Checked):
    """Settings of :class:`router.sites.fleetmind.FleetMind`.

    Attributes:
        margin: A request leaves its home for a site whose cost is lower by this share of the cost at home ...
        margin_s: ... and by this many seconds.
        share_price: Cost of sending everything to a site whose planned share is 0, as a share of the time that
            the targets of the request allow; 0 = the plan's shares are not followed.
        harm_price: Seconds of others against own seconds.
        price_s: Seconds that one unit of money is worth.
        spread: Standard deviation of the logarithm of a site's predicted times.
        dwell_s: A site that failed is kept out this long; each further time twice as long, up to 16 times.
        silence_s: A site that owes first tokens and has sent none for this long counts as failed; or three times
            the predicted time to first token, if that is longer.
        trial: Requests at a time that a site gets when it comes back; each first token lets in one more.
        stale_s: A report of this age has doubled the uncertainty of its site; see ``trust_s``.
    """

    margin: float = between(0.0, 1.0, 0.1)
    margin_s: float = at_least(0.0, 0.03)
    share_price: float = at_least(0.0, 0.1)
    harm_price: float = at_least(0.0, 1.0)
    price_s: float = at_least(0.0, 1.0)
    spread: float = above(0.0, 0.3)
    dwell_s: float = above(0.0, 10.0)
    silence_s: float = above(0.0, 5.0)
    trial: int = whole(1, 4)
    stale_s: float = above(0.0, 5.0)
