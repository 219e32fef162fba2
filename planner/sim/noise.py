"""Step-time noise: one stream of factors for each replica, the same for every policy that runs with the seed."""

from __future__ import annotations

import math

import numpy as np

LEAST_FACTOR = 0.2
"""A step never takes less than this share of its mean, however unlucky the draw."""
_BATCH = 128


class NoiseStream:
    """Factors around 1 for jumps of ``k`` steps.

    ``k`` independent steps with relative deviation σ have a mean with deviation σ/√k, so one draw stands for the
    whole jump: ``max(0.2, 1 + σ·z/√k)``. Draw number ``i`` of replica ``r`` depends on (seed, r, i) alone.

    Args:
        sigma: Relative standard deviation of one step (0 to 0.5); 0 draws nothing.
        seed: Seed of the run.
        replica: Row number of the replica.
    """

    __slots__ = ("_draws", "_generator", "sigma")

    def __init__(self, sigma: float, seed: int, replica: int) -> None:
        self.sigma = sigma
        self._draws: list[float] = []
        sequence = np.random.SeedSequence(entropy=seed, spawn_key=(1, replica))
        self._generator = np.random.Generator(np.random.PCG64(sequence))

    def factor(self, steps: int) -> float:
        """The next factor, for a jump of ``steps`` steps (at least 1)."""
        if self.sigma == 0.0:
            return 1.0
        if not self._draws:
            self._draws = self._generator.standard_normal(_BATCH).tolist()
        spread = self.sigma if steps == 1 else self.sigma / math.sqrt(steps)
        return max(LEAST_FACTOR, 1.0 + spread * self._draws.pop())


_MASK = (1 << 64) - 1


def uniform(seed: int, stream: int, index: int) -> float:
    """A number in [0, 1) that depends on its three arguments alone, whatever was drawn before.

    It is the finaliser of SplitMix64 (Steele, Lea, Flood 2014) over a mixed key: two rounds, top 53 bits.
    """
    x = (seed * 0x9E3779B97F4A7C15 + stream * 0xD1B54A32D192ED03 + index * 0x8CB92BA72F3D8DD7) & _MASK
    for _ in range(2):
        x = (x + 0x9E3779B97F4A7C15) & _MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        x ^= x >> 31
    return (x >> 11) * 2.0**-53
