"""Streaming measures of a run: nothing here grows with the trace."""

from __future__ import annotations

from data.types import Outcome, Slo, Status
from planner.sim.histogram import Histogram
from planner.sim.result import GroupResult
from router.goodput import Waste


class Group:
    """Counters of one group of requests: all, one class, one tenant."""

    __slots__ = (
        "cancelled",
        "completed",
        "e2e",
        "failed",
        "good_tokens",
        "hit_tokens",
        "input_tokens",
        "met",
        "offered",
        "output_tokens",
        "prompt_tokens",
        "rejected",
        "repeats",
        "tpot",
        "ttft",
        "waste",
    )

    def __init__(self) -> None:
        self.offered = self.completed = self.met = 0
        self.failed = self.cancelled = self.rejected = self.repeats = 0
        self.input_tokens = self.output_tokens = self.good_tokens = 0
        self.prompt_tokens = 0
        """Prompt tokens of attempts that an engine scheduled."""
        self.hit_tokens = 0
        """What of them the engine found in its cache."""
        self.waste = Waste()
        self.ttft, self.tpot, self.e2e = Histogram(), Histogram(), Histogram()

    @property
    def running(self) -> int:
        """Requests offered that have not ended."""
        return self.offered - self.completed - self.failed - self.cancelled - self.rejected

    def result(self, duration_s: float) -> GroupResult:
        """The group's figures over a test period of that length."""
        per_s = 1.0 / duration_s if duration_s > 0 else 0.0
        return GroupResult(
            offered=self.offered,
            completed=self.completed,
            met=self.met,
            failed=self.failed,
            cancelled=self.cancelled,
            rejected=self.rejected,
            running=self.running,
            repeats=self.repeats,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            good_output_tokens=self.good_tokens,
            goodput_tokens_per_s=self.good_tokens * per_s,
            output_tokens_per_s=self.output_tokens * per_s,
            attainment_finished=self.met / self.completed if self.completed else 0.0,
            attainment_offered=self.met / self.offered if self.offered else 0.0,
            hit_rate=self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0,
            ttft=self.ttft.distribution(),
            tpot=self.tpot.distribution(),
            e2e=self.e2e.distribution(),
            wasted_tokens=self.waste.by_cause(),
        )


Groups = tuple[Group, ...]
"""The groups that one request counts in."""


class Meter:
    """All groups of a run; times count from a request's first arrival, retries and network included."""

    def __init__(self) -> None:
        self.total = Group()
        self.by_class: dict[str, Group] = {}
        self.by_tenant: dict[str, Group] = {}
        self.by_tier: dict[str, Group] = {}
        self.residency_breaches = 0

    def groups(self, workload_class: str, tenant: str, tier: str = "standard") -> Groups:
        """The groups of a request of that class, tenant and tier; made on first use."""
        kind = self.by_class.setdefault(workload_class, Group())
        own = self.by_tenant.setdefault(tenant, Group())
        return self.total, kind, own, self.by_tier.setdefault(tier, Group())

    def scheduled(self, groups: Groups, prompt_tokens: int, cached_tokens: int) -> None:
        """An attempt ended that an engine had scheduled, with that prefix hit."""
        for group in groups:
            group.prompt_tokens += prompt_tokens
            group.hit_tokens += cached_tokens

    def wasted(
        self, groups: Groups, status: Status, tokens: int, recomputed_tokens: int, met: bool, again: bool
    ) -> None:
        """An attempt ended after an engine had computed ``tokens`` tokens for it, and some of them twice."""
        for group in groups:
            group.waste.add(status, tokens, met, again)
            group.waste.preempted += recomputed_tokens

    def completed(self, groups: Groups, slo: Slo, outcome: Outcome) -> int:
        """A request completed; gives its good output tokens (0 when it missed a target)."""
        ttft_s, e2e_s, output_tokens = outcome.ttft_s, outcome.e2e_s, outcome.output_tokens
        met = slo.met(ttft_s, e2e_s, output_tokens)
        good = output_tokens if met else 0
        tpot_s = outcome.tpot_s
        for group in groups:
            group.completed += 1
            group.met += met
            group.input_tokens += outcome.input_tokens
            group.output_tokens += output_tokens
            group.good_tokens += good
            group.ttft.add(ttft_s)
            group.e2e.add(e2e_s)
            if output_tokens >= 2:
                group.tpot.add(tpot_s)
        return good

    def gave_up(self, groups: Groups, status: Status) -> None:
        """A request ended without completing, and will not be tried again."""
        for group in groups:
            if status is Status.CANCELLED:
                group.cancelled += 1
            elif status is Status.REJECTED:
                group.rejected += 1
            else:
                group.failed += 1
