"""Which version answers a request that names a model without one, while traffic moves from one to the next."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from data.plan import VersionRamp

SPAN = 2**32


class VersionChoice:
    """Shares requests between two versions as a plan's ramps say.

    A session stays where it is while the share of the new version grows, and an attempt that is repeated gets the
    version of the first one: the choice depends on nothing but the share and the name that is given.

    Args:
        ramps: Of the plan in force; none = every request must name its version.
    """

    def __init__(self, ramps: Sequence[VersionRamp] = ()) -> None:
        self._ramps = {ramp.model: ramp for ramp in ramps}

    def key(self, model: str, stays: str) -> str:
        """The model with its version.

        Args:
            model: As the request names it; with a version, or without a ramp, it is given back as it is.
            stays: What the choice stays the same for: the session, else the request.
        """
        ramp = self._ramps.get(model)
        if ramp is None:
            return model
        place = zlib.crc32(f"{model}\n{stays}".encode("utf-8", "replace")) / SPAN
        return ramp.new if place < ramp.share else ramp.old
