"""The service's clock: seconds since the epoch that never step back."""

from __future__ import annotations

import time


class ServiceClock:
    """Reads the time of day once and counts on monotonically: leases and reports of one process agree on it."""

    def __init__(self) -> None:
        self._base_s = time.time() - time.monotonic()

    def __call__(self) -> float:
        """Seconds since the epoch."""
        return self._base_s + time.monotonic()
