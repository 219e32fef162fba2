"""Latency-based routing of LiteLLM: the lowest mean of the last samples."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from data.types import IntArray, Outcome, Status
from router.policies.base import PolicyBase, PolicyContext, PolicyEntry
from router.policies.settings import Checked, above, at_least, one_of, whole
from router.types import FleetView, RouteRequest

TIMEOUT_SAMPLE_S = 1000.0


@dataclass(frozen=True, slots=True)
class LatencyBasedLitellmSettings(Checked):
    """Settings of the rule.

    Attributes:
        signal: ``ttft`` (streamed requests) or ``per_token`` (response time / completion tokens).
        samples: Samples of which the mean is taken, at most.
        buffer: Deployments within this share above the lowest mean are equal.
        expiry_s: A deployment without a new sample for this long counts as new.
    """

    signal: str = one_of("ttft", "per_token")
    samples: int = whole(1, 10)
    buffer: float = at_least(0, 0.0)
    expiry_s: float = above(0, 3600.0)


class LatencyBasedLitellm(PolicyBase):
    """Uniform among the deployments whose mean is within the buffer of the lowest; no samples count as 0."""

    name = "latency_based_litellm"

    def __init__(self, settings: LatencyBasedLitellmSettings, context: PolicyContext) -> None:
        super().__init__(context)
        n = len(context.table)
        self._settings = settings
        self._samples: list[list[float]] = [[] for _ in range(n)]
        self._mean = np.zeros(n)
        self._sampled_at_s = np.full(n, -np.inf)
        self._sent_at_s: dict[tuple[int, int], float] = {}

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:  # noqa: ARG002
        """See the class."""
        live = view.now_s - self._sampled_at_s[candidates] <= self._settings.expiry_s
        mean = np.where(live, self._mean[candidates], 0.0)
        return self.pick(candidates[mean <= (1.0 + self._settings.buffer) * mean.min()])

    def dispatched(self, request: RouteRequest, endpoint: int, view: FleetView) -> None:  # noqa: ARG002
        """Start its clock."""
        self._sent_at_s[request.request_id, request.attempt] = view.now_s

    def first_token(self, request: RouteRequest, endpoint: int, now_s: float, ttft_s: float) -> None:  # noqa: ARG002
        """A TTFT sample."""
        if self._settings.signal == "ttft":
            self._sample(endpoint, ttft_s, now_s)

    def finished(self, request: RouteRequest, outcome: Outcome) -> None:
        """A sample per token, or that of a time-out; other failures teach nothing.

        A client that leaves before the first token is taken for a time-out.
        """
        sent_at_s = self._sent_at_s.pop((request.request_id, request.attempt), math.nan)
        if outcome.status is Status.CANCELLED and math.isnan(outcome.ttft_s):
            self._sample(outcome.endpoint, TIMEOUT_SAMPLE_S, outcome.finished_s)
        elif outcome.status is Status.COMPLETED and self._settings.signal == "per_token":
            took = (outcome.finished_s - sent_at_s) / max(outcome.output_tokens, 1)
            self._sample(outcome.endpoint, took, outcome.finished_s)

    def _sample(self, endpoint: int, seconds: float, now_s: float) -> None:
        if now_s - self._sampled_at_s[endpoint] > self._settings.expiry_s:
            self._samples[endpoint] = []
        kept = [*self._samples[endpoint], seconds][-self._settings.samples :]
        self._samples[endpoint] = kept
        self._mean[endpoint] = sum(kept) / len(kept)
        self._sampled_at_s[endpoint] = now_s

    def endpoint_reset(self, endpoint: int) -> None:
        """Forget its samples."""
        self._samples[endpoint] = []
        self._mean[endpoint] = 0.0
        self._sampled_at_s[endpoint] = -np.inf


ENTRY = PolicyEntry(
    name=LatencyBasedLitellm.name,
    summary="Lowest mean of the last 10 TTFTs (or times per token); a deployment without samples counts as 0.",
    sees="own past times",
    source="LiteLLM latency-based-routing, without its TPM and RPM limits",
    ties="random",
    settings=LatencyBasedLitellmSettings,
    factory=LatencyBasedLitellm,
    grid={"signal": ("ttft", "per_token"), "buffer": (0.0, 0.1, 0.3, 0.5), "samples": (3, 10)},
)
