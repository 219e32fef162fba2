"""Prefix hash of SMG's gateway: consistent hashing of the prompt's head with bounded load."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from data.types import IntArray, UIntArray
from router.endpoints import EndpointTable
from router.policies.base import PolicyBase, PolicyContext, PolicyEntry
from router.policies.settings import Checked, at_least, whole
from router.types import FleetView, RouteRequest


@dataclass(frozen=True, slots=True)
class PrefixHashSmgSettings(Checked):
    """Settings of the rule.

    Attributes:
        prefix_tokens: Tokens of the prompt's head that are hashed; as many whole blocks as cover them.
        virtual_nodes: Points of each worker on the ring.
        load_factor: A worker is refused above this multiple of the mean load with the request counted in ...
        refuse_margin: ... and above the mean plus this many requests (version 1.13; 0 = factor only).
    """

    prefix_tokens: int = whole(1, 256)
    virtual_nodes: int = whole(1, 150)
    load_factor: float = at_least(1, 1.25)
    refuse_margin: float = at_least(0, 10.0)


@dataclass(frozen=True, slots=True)
class Ring:
    """Points in ascending order and the row that owns each."""

    points: UIntArray
    owners: IntArray


def ring_of(table: EndpointTable, model: str, virtual_nodes: int) -> Ring:
    """The ring of one model's endpoints; it depends on their ids only, not on their order in the table."""
    rows = [row for row, spec in enumerate(table.specs) if spec.model == model]
    points = np.array(
        [_point(f"{table.specs[row].endpoint_id}#{node}") for row in rows for node in range(virtual_nodes)],
        dtype=np.uint64,
    )
    order = np.argsort(points, kind="stable")
    return Ring(points[order], np.repeat(np.array(rows, dtype=np.int64), virtual_nodes)[order])


def _point(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


class PrefixHashSmg(PolicyBase):
    """Clockwise from the prompt's hash, the first worker that is not overloaded."""

    name = "prefix_hash_smg"

    def __init__(self, settings: PrefixHashSmgSettings, context: PolicyContext) -> None:
        super().__init__(context)
        self._settings = settings
        self._rings: dict[str, Ring] = {}
        self._allowed = np.zeros(len(context.table), dtype=bool)

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:
        """See the class; the least loaded worker is never refused, so somebody always takes it."""
        settings = self._settings
        ring = self._rings.get(request.model)
        if ring is None:
            ring = self._rings[request.model] = ring_of(self.table, request.model, settings.virtual_nodes)
        loads = view.endpoints.inflight[candidates]
        total, n = loads.sum(), len(candidates)
        accepted = loads <= max(settings.load_factor * (total + 1) / n, total / n + settings.refuse_margin)
        start = int(np.searchsorted(ring.points, np.uint64(self._key(request))))
        return self._walk(ring, start, candidates[accepted])

    def _walk(self, ring: Ring, start: int, rows: IntArray) -> int:
        allowed = self._allowed
        allowed[rows] = True
        near = ring.owners[start : start + 64]
        found = np.flatnonzero(allowed[near])
        if not len(found):
            near = np.concatenate([ring.owners[start:], ring.owners[:start]])
            found = np.flatnonzero(allowed[near])
        allowed[rows] = False
        return int(near[found[0]])

    def _key(self, request: RouteRequest) -> int:
        """The chained hash of the last block within the head; a prompt without hashes is its own key."""
        hashes = request.block_hashes
        if not hashes:
            return _point(f"request {request.request_id}")
        blocks = -(-self._settings.prefix_tokens // request.block_tokens)
        return _point(str(hashes[min(blocks, len(hashes)) - 1]))


ENTRY = PolicyEntry(
    name=PrefixHashSmg.name,
    summary="Consistent hashing of the first 256 tokens; workers above 1.25 times the mean load are skipped.",
    sees="own in-flight counts",
    source="SMG prefix_hash (bounded-load consistent hashing)",
    ties="hash",
    ties_note="equal load goes where the prompt's hash points; prompts without hashes spread by request",
    settings=PrefixHashSmgSettings,
    factory=PrefixHashSmg,
    grid={
        "load_factor": (1.1, 1.25, 1.5, 2.0),
        "refuse_margin": (0.0, 4.0, 10.0),
        "prefix_tokens": (256, 1024, 4096),
    },
)
