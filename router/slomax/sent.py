"""A dispatch that has not ended, as the gate counts it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Sent:
    """One dispatch.

    Attributes:
        row: Endpoint.
        long: Its prefill counts as long, and is not done.
        bound: It has a TPOT target.
        guaranteed: Its tenant is of the guaranteed tier.
    """

    row: int
    long: bool
    bound: bool
    guaranteed: bool = False
