"""How the workers of a fit on Ray exchange the few numbers that LightGBM does not exchange for them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np

from data.types import FloatArray


class Meeting:
    """Collects one array of each worker, step by step, and gives all of them to everybody; runs as a Ray actor.

    Args:
        size: Number of workers.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._steps: dict[int, tuple[dict[int, FloatArray], asyncio.Event]] = {}

    async def gather(self, step: int, rank: int, values: FloatArray) -> FloatArray:
        """Wait for all workers of the step; shape (workers, len(values)), in the order of their ranks."""
        given, everybody = self._steps.setdefault(step, ({}, asyncio.Event()))
        given[rank] = values
        if len(given) == self._size:
            everybody.set()
            # Who is in this step has had the one before; nobody will ask for it again.
            self._steps.pop(step - 1, None)
        await everybody.wait()
        return np.stack([given[one] for one in range(self._size)])


class RayPeers:
    """The other workers of a fit, met in a :class:`Meeting`.

    Args:
        meeting: Handle of the actor.
        rank: Number of this worker.
        parameters: What LightGBM must be told of the others.
    """

    def __init__(self, meeting: Any, rank: int, parameters: Mapping[str, object]) -> None:
        self.parameters = parameters
        self._meeting, self._rank, self._step = meeting, rank, 0

    def gather(self, values: FloatArray) -> FloatArray:
        """Every worker's values, shape (workers, len(values))."""
        import ray

        self._step += 1
        every: FloatArray = ray.get(self._meeting.gather.remote(self._step, self._rank, values))
        return every
