"""How long the steps of one replica take, and how many of them fit in a time, in closed form.

A decode step of ``b`` sequences that hold ``kv`` tokens takes ``A + d2·kv``, where A depends on ``b`` alone. Each
step adds ``b`` tokens, so ``k`` steps from ``kv`` on take (docs/simulator.md, equation 3)

    T(k) = f·(k·a + g·k·(k − 1)/2),   a = A + d2·kv + host overhead,   g = d2·b,

with ``f`` the product of noise and slow-down. T grows with k and is inverted by one square root.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from data.catalog.types import ServiceTimes


class StepTimes:
    """Service times of one replica, unpacked for the inner loop.

    Args:
        times: Coefficients of the catalog.
    """

    __slots__ = ("_fixed", "_times", "d1", "d2", "host", "p0", "p1", "p2")

    def __init__(self, times: ServiceTimes) -> None:
        self._times = times
        self._fixed: dict[int, float] = {0: 0.0}
        self.p0, self.p1, self.p2 = float(times.p0), float(times.p1), float(times.p2)
        self.d1, self.d2 = float(times.d1), float(times.d2)
        self.host = float(times.host_overhead)

    def decode_base_s(self, batch: int) -> float:
        """Decode time that does not depend on the KV tokens, without host overhead; 0 for an empty batch."""
        fixed = self._fixed.get(batch)
        if fixed is None:
            fixed = self._fixed[batch] = float(self._times.decode_fixed_s(batch))
        return fixed

    def first_step_s(self, batch: int, kv_tokens: int) -> float:
        """The first of a run of pure decode steps: ``a`` above."""
        return self.decode_base_s(batch) + self.d2 * kv_tokens + self.host

    def growth_s(self, batch: int) -> float:
        """What each further decode step takes more than the one before: ``g`` above."""
        return self.d2 * batch

    def mixed_step_s(self, chunks: Sequence[tuple[int, int]], batch: int, kv_tokens: int) -> float:
        """A step with prefill chunks ``(tokens, tokens before them)`` and a decode batch that may be empty.

        The weights are read once, whoever needs them; the variable parts of both add up (equation 2).
        """
        p1, p2 = self.p1, self.p2
        variable = 0.0
        for tokens, before in chunks:
            variable += tokens * (p1 + p2 * (before + tokens / 2))
        if not batch:
            return self.p0 + variable + self.host
        per_sequence = self.d1 * batch
        weights = max(self.p0, self.decode_base_s(batch) - per_sequence)
        return weights + variable + per_sequence + self.d2 * kv_tokens + self.host


def run_s(first: float, growth: float, factor: float, steps: int) -> float:
    """Time of ``steps`` decode steps: T above."""
    return factor * (steps * first + growth * steps * (steps - 1) / 2)


def steps_until(first: float, growth: float, factor: float, elapsed_s: float) -> int:
    """Steps that have ended when the one in progress at ``elapsed_s`` ends: least k >= 1 with T(k) >= elapsed."""
    target = elapsed_s / factor
    half = first - growth / 2
    root = math.sqrt(half * half + 2.0 * growth * target)
    # 2x / (h + √(h² + 2gx)) is the root without cancellation; it is x/first where growth is 0.
    steps = max(1, math.ceil(2.0 * target / (half + root)))
    while run_s(first, growth, factor, steps) < elapsed_s:
        steps += 1
    while steps > 1 and run_s(first, growth, factor, steps - 1) >= elapsed_s:
        steps -= 1
    return steps
