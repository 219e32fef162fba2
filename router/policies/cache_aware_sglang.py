"""Cache-aware routing of sglang's router 0.3.2: one prefix tree, switched off as a whole when load is uneven."""

from __future__ import annotations

from dataclasses import dataclass

from data.types import IntArray
from router.policies.base import PolicyBase, PolicyContext, PolicyEntry, least_first
from router.policies.own_index import OwnIndex
from router.policies.settings import Checked, above, at_least, between
from router.types import FleetView, RouteRequest

CHARACTERS_PER_TOKEN = 4.0
"""The peer's tree holds text; blocks of tokens stand in for it here."""


@dataclass(frozen=True, slots=True)
class CacheAwareSglangSettings(Checked):
    """Settings of the rule; defaults are those of its command line.

    Attributes:
        cache_threshold: Matched share of the prompt above which the owner of the match is chosen.
        balance_abs: Load is uneven if most and least in-flight differ by more than this ...
        balance_rel: ... and most exceeds least by more than this factor.
        tree_characters: Text kept for each worker; the least recently used leaves go first. (The peer trims
            once a minute, here the bound always holds.)
    """

    cache_threshold: float = between(0, 1, 0.3)
    balance_abs: float = at_least(0, 64.0)
    balance_rel: float = at_least(1, 1.5)
    tree_characters: float = above(0, float(2**26))


class CacheAwareSglang(PolicyBase):
    """Uneven load: least in-flight. Else the owner of the longest match, if that is long enough."""

    name = "cache_aware_sglang"

    def __init__(self, settings: CacheAwareSglangSettings, context: PolicyContext) -> None:
        super().__init__(context)
        self._settings = settings
        self._tree = OwnIndex(context.table, settings.tree_characters / CHARACTERS_PER_TOKEN)
        self._unrecorded: tuple[int, int] | None = None

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:
        """See the class."""
        self._unrecorded = None
        loads = view.endpoints.inflight[candidates]
        most, least = loads.max(), loads.min()
        if most - least > self._settings.balance_abs and most > self._settings.balance_rel * least:
            return least_first(candidates, loads)
        owner = self._owner(request)
        if owner < 0:
            return least_first(candidates, loads)
        if (candidates == owner).any():
            return owner
        # An unhealthy owner: the first healthy worker takes the request, and the tree does not learn it.
        self._unrecorded = (request.request_id, request.attempt)
        return int(candidates[0])

    def _owner(self, request: RouteRequest) -> int:
        tree = self._tree.of(request)
        depth, _ = tree.deepest(request.block_hashes)
        matched = min(depth * request.block_tokens, request.input_tokens)
        if matched <= self._settings.cache_threshold * request.input_tokens:
            return -1
        return tree.latest_holder(request.block_hashes[depth - 1])

    def dispatched(self, request: RouteRequest, endpoint: int, view: FleetView) -> None:  # noqa: ARG002
        """Put the prompt into the tree under the chosen worker."""
        if self._unrecorded != (request.request_id, request.attempt):
            self._tree.insert(request, endpoint)

    def endpoint_reset(self, endpoint: int) -> None:
        """Take the worker out of the tree."""
        self._tree.reset(endpoint)


ENTRY = PolicyEntry(
    name=CacheAwareSglang.name,
    summary="Uneven load: fewest in flight; else the owner of the longest match if over 30 % of the prompt.",
    sees="own in-flight counts, own prefix tree",
    source="sglang router 0.3.2 cache_aware",
    ties="first_index",
    ties_note="the peer keeps the first worker of its list on equal load",
    settings=CacheAwareSglangSettings,
    factory=CacheAwareSglang,
    grid={
        "cache_threshold": (0.1, 0.3, 0.5, 0.7),
        "balance_abs": (4.0, 16.0, 32.0, 64.0),
        "balance_rel": (1.1, 1.5, 2.0),
    },
)
