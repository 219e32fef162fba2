"""Which endpoint holds which prompt prefix.

``EventPrefixIndex`` and ``ApproxPrefixIndex`` stand on a dictionary: exact, small, loaded in no time; the
simulator and the policies' own bookkeeping use them. ``router.prefix.index.PrefixIndex`` stands on one compiled
table for a whole fleet; the service uses it.
"""

from router.prefix.dict_indexes import ApproxPrefixIndex, EventPrefixIndex
from router.prefix.dict_masks import BlockMasks, change_points, change_points_linear

__all__ = ["ApproxPrefixIndex", "BlockMasks", "EventPrefixIndex", "change_points", "change_points_linear"]
