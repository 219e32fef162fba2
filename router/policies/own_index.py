"""A policy's own guess of which endpoint holds which prefix: approximate, bounded, one index a model."""

from __future__ import annotations

import numpy as np

from data.types import FloatArray, IntArray
from router.endpoints import EndpointTable
from router.prefix import ApproxPrefixIndex
from router.types import RouteRequest


class OwnIndex:
    """Approximate indexes fed by the policy's dispatches.

    Args:
        table: Its rows are the endpoints.
        capacity_tokens: Prompt tokens remembered for each endpoint (above 0); ``None`` = its KV capacity. The
            first request of a model tells how many blocks that is.
    """

    def __init__(self, table: EndpointTable, capacity_tokens: float | None = None) -> None:
        self._capacity_tokens: FloatArray = (
            table.kv_capacity_tokens if capacity_tokens is None else np.full(len(table), capacity_tokens)
        )
        self._indexes: dict[str, ApproxPrefixIndex] = {}

    def of(self, request: RouteRequest) -> ApproxPrefixIndex:
        """The index of the request's model."""
        index = self._indexes.get(request.model)
        if index is None:
            blocks = (self._capacity_tokens // request.block_tokens).astype(int).tolist()
            index = self._indexes[request.model] = ApproxPrefixIndex(len(blocks), blocks)
        return index

    def matched(self, request: RouteRequest) -> IntArray:
        """Leading blocks each endpoint is believed to hold; read-only, shape (endpoints,)."""
        return self.of(request).matched_blocks(request.block_hashes)

    def insert(self, request: RouteRequest, endpoint: int) -> None:
        """The request's prompt was sent to the endpoint."""
        self.of(request).insert(endpoint, request.block_hashes)

    def reset(self, endpoint: int) -> None:
        """Forget what the endpoint was believed to hold."""
        for index in self._indexes.values():
            index.dropped(endpoint)
