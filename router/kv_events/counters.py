"""What happened to the KV events of an endpoint, for metrics."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

import numpy as np

from data.types import IntArray

LAG_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the lag histogram; one more bin holds what is above."""


@dataclass(slots=True)
class EventCounters:
    """Counts since start, all of one endpoint or summed over several.

    Attributes:
        batches, stored_blocks, removed_blocks, clears: Applied.
        malformed: Payloads and events that could not be read, or whose parts contradict each other.
        duplicates: Messages that were applied before.
        gaps: Breaks in the sequence; ``replays`` of them were closed, ``lost`` cost the endpoint its entries.
        restarts: Sequences that began anew: the engine came back empty.
        orphans: Stored events whose parent is not known here.
        not_comparable: Stored events with an adapter, salt or media key that is not understood.
        other_tiers: Events about memory other than the device's.
        other_groups: Events of cache groups without full attention, whose blocks come and go by other rules.
        block_size: Stored events with another block size than the endpoint's.
        unknown_removes: Removed blocks that were not known.
        overflows: Clears because an endpoint held more blocks than the bound.
    """

    batches: int = 0
    stored_blocks: int = 0
    removed_blocks: int = 0
    clears: int = 0
    malformed: int = 0
    duplicates: int = 0
    gaps: int = 0
    replays: int = 0
    lost: int = 0
    restarts: int = 0
    orphans: int = 0
    not_comparable: int = 0
    other_tiers: int = 0
    other_groups: int = 0
    block_size: int = 0
    unknown_removes: int = 0
    overflows: int = 0
    last_lag_s: float = 0.0
    lag_sum_s: float = 0.0
    lag_bins: IntArray = field(default_factory=lambda: np.zeros(len(LAG_BOUNDS_S) + 1, dtype=np.int64))

    def lag(self, lag_s: float) -> None:
        """A batch was applied ``lag_s`` after it was made; below 0 (clocks differ) counts as 0."""
        lag_s = max(lag_s, 0.0)
        self.last_lag_s = lag_s
        self.lag_sum_s += lag_s
        self.lag_bins[bisect_left(LAG_BOUNDS_S, lag_s)] += 1
