"""Who holds the GPUs of each pool: a replica that starts waits its turn until enough of them are free."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from data.errors import SettingError
from router.endpoints import EndpointSpec

PoolKey = tuple[str, str]
"""Site and GPU type."""


class GpuLedger:
    """GPUs taken and given back, pool by pool; those who wait are served in the order in which they came.

    Args:
        specs: The endpoints.
        gpus: GPUs of each pool; a pool that is not listed has no limit.
    """

    def __init__(self, specs: Sequence[EndpointSpec], gpus: Mapping[PoolKey, int]) -> None:
        self._pool: list[PoolKey] = [(spec.site, spec.gpu_type) for spec in specs]
        self._gpus = [spec.gpus for spec in specs]
        self._free = dict(gpus)
        self._waiting: dict[PoolKey, deque[int]] = {pool: deque() for pool in gpus}

    def hold(self, endpoint: int) -> None:
        """An endpoint that stands at the start of the run takes its GPUs.

        Raises:
            SettingError: The pool has not that many.
        """
        if not self.take(endpoint):
            raise SettingError(
                "more replicas stand than the pool has GPUs for",
                field="/".join(self._pool[endpoint]),
                value=f"{self._gpus[endpoint]} GPUs more",
                expected=f"{self._free[self._pool[endpoint]]} free",
            )

    def take(self, endpoint: int) -> bool:
        """Take the GPUs of an endpoint; if they are not free, or others wait, it waits and ``False`` is given."""
        pool = self._pool[endpoint]
        if pool not in self._free:
            return True
        if self._waiting[pool] or self._free[pool] < self._gpus[endpoint]:
            self._waiting[pool].append(endpoint)
            return False
        self._free[pool] -= self._gpus[endpoint]
        return True

    def give(self, endpoint: int) -> list[int]:
        """Give the GPUs of an endpoint back; gives those who waited and have theirs now."""
        pool = self._pool[endpoint]
        if pool not in self._free:
            return []
        self._free[pool] += self._gpus[endpoint]
        return self._serve(pool)

    def leave(self, endpoint: int) -> list[int]:
        """An endpoint waits no longer; gives those behind it who have their GPUs now."""
        pool = self._pool[endpoint]
        self._waiting[pool].remove(endpoint)
        return self._serve(pool)

    def _serve(self, pool: PoolKey) -> list[int]:
        served: list[int] = []
        waiting = self._waiting[pool]
        while waiting and self._free[pool] >= self._gpus[waiting[0]]:
            self._free[pool] -= self._gpus[waiting[0]]
            served.append(waiting.popleft())
        return served
