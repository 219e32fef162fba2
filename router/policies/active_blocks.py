"""KV blocks of the requests in flight at each endpoint, shared blocks counted once."""

from __future__ import annotations

import numpy as np

from data.types import FloatArray
from router.prefix import EventPrefixIndex
from router.types import RouteRequest


class ActiveBlocks:
    """Which prompt blocks are in use by requests that have not finished.

    Attributes:
        total: Distinct blocks in use at each endpoint. A prompt without hashes shares nothing.
    """

    def __init__(self, n_endpoints: int) -> None:
        self.total = np.zeros(n_endpoints)
        self._index = EventPrefixIndex(n_endpoints)
        self._users: list[dict[int, int]] = [{} for _ in range(n_endpoints)]
        self._anonymous = [0] * n_endpoints
        self._open: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._open)

    def added(self, request: RouteRequest) -> FloatArray:
        """Blocks the request would add at each endpoint."""
        added: FloatArray = blocks_of(request) - self._index.matched_blocks(request.block_hashes).astype(float)
        return added

    def enter(self, request: RouteRequest, endpoint: int) -> None:
        """The request starts to use its blocks at the endpoint."""
        self._open[request.request_id, request.attempt] = endpoint
        users = self._users[endpoint]
        for block in request.block_hashes:
            users[block] = users.get(block, 0) + 1
        self._index.stored(endpoint, request.block_hashes)
        self._count(endpoint, 0 if request.block_hashes else blocks_of(request))

    def leave(self, request: RouteRequest) -> None:
        """The request ended; nothing happens if its endpoint was reset meanwhile."""
        endpoint = self._open.pop((request.request_id, request.attempt), -1)
        if endpoint < 0:
            return
        users = self._users[endpoint]
        gone = []
        for block in request.block_hashes:
            users[block] -= 1
            if not users[block]:
                del users[block]
                gone.append(block)
        self._index.removed(endpoint, gone)
        self._count(endpoint, 0 if request.block_hashes else -blocks_of(request))

    def _count(self, endpoint: int, anonymous: int) -> None:
        self._anonymous[endpoint] += anonymous
        self.total[endpoint] = len(self._users[endpoint]) + self._anonymous[endpoint]

    def reset(self, endpoint: int) -> None:
        """Nothing is in use there any more."""
        self._open = {key: row for key, row in self._open.items() if row != endpoint}
        self._users[endpoint] = {}
        self._anonymous[endpoint] = 0
        self._index.cleared(endpoint)
        self.total[endpoint] = 0.0


def blocks_of(request: RouteRequest) -> int:
    """Prompt blocks, a last partial one included."""
    return len(request.block_hashes) or -(-request.input_tokens // request.block_tokens)
