"""State of the fleet over time in a fixed number of points: the step doubles when a run outgrows them."""

from __future__ import annotations

import numpy as np

from data.types import FloatArray
from planner.sim.result import Timeline

MOST_POINTS = 512


class TimelineMeter:
    """Collects one point every ``step_s``, counted from the first arrival.

    Args:
        start_s: The first arrival.
        step_s: Width of a point at first (> 0).
        sites: Names of the columns.
    """

    def __init__(self, start_s: float, step_s: float, sites: tuple[str, ...]) -> None:
        self.start_s = start_s
        self.step_s = step_s
        self.sites = sites
        self._states: list[FloatArray] = []
        self._tokens: list[float] = []

    @property
    def next_s(self) -> float:
        """When the next point is due."""
        return self.start_s + len(self._states) * self.step_s

    def sample(self, waiting: FloatArray, running: FloatArray, kv_use: FloatArray) -> None:
        """One point, taken at ``next_s``; each array has one entry a site."""
        if len(self._states) == MOST_POINTS:
            self._double()
        self._states.append(np.stack((waiting, running, kv_use)))

    def good_tokens(self, now_s: float, tokens: int) -> None:
        """Good output tokens of a request that ended now."""
        point = int((now_s - self.start_s) / self.step_s)
        while point >= MOST_POINTS:
            self._double()
            point = int((now_s - self.start_s) / self.step_s)
        if point >= len(self._tokens):
            self._tokens.extend([0.0] * (point + 1 - len(self._tokens)))
        self._tokens[point] += tokens

    def result(self) -> Timeline:
        """The timeline; each goodput point is the mean rate over its step."""
        points = len(self._states)
        states = np.stack(self._states) if points else np.zeros((0, 3, len(self.sites)))
        tokens = np.zeros(points)
        known = min(points, len(self._tokens))
        tokens[:known] = self._tokens[:known]
        return Timeline(self.step_s, self.sites, states[:, 0], states[:, 1], states[:, 2], tokens / self.step_s)

    def _double(self) -> None:
        pairs = [np.mean(np.stack(self._states[at : at + 2]), axis=0) for at in range(0, len(self._states), 2)]
        self._states = pairs
        self._tokens = [sum(self._tokens[at : at + 2]) for at in range(0, len(self._tokens), 2)]
        self.step_s *= 2
