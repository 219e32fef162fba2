"""The books of Goodput: what came out, what met its targets, and which tokens were computed for nothing, and why.

The rules are the same on line and in the simulator; both feed them with the outcome of every attempt.

A token that an engine computed (an uncached prompt token or an output token) counts as wasted once at most:

====================  =================================================================================
``late``              of a request that completed outside its targets
``cancelled``         of an attempt that its client gave up, time-outs included
``repeated``          of an attempt that failed and was tried again
``failed``            of an attempt that failed and was not
``preempted``         computed a second time after the engine had pushed a sequence out (besides the above)
====================  =================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from data.types import Outcome, Slo, Status


@dataclass(slots=True)
class Waste:
    """Tokens computed for nothing, by cause."""

    late: int = 0
    cancelled: int = 0
    failed: int = 0
    repeated: int = 0
    preempted: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.late + self.cancelled + self.failed + self.repeated + self.preempted

    def by_cause(self) -> dict[str, int]:
        """The same by name."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def add(self, status: Status, tokens: int, met: bool, again: bool) -> None:
        """An attempt ended after an engine had computed ``tokens`` tokens for it.

        Args:
            status: How it ended.
            tokens: Computed tokens, prefix hits not among them.
            met: It completed within its targets.
            again: It will be tried again.
        """
        if status is Status.COMPLETED:
            self.late += 0 if met else tokens
        elif status is Status.CANCELLED:
            self.cancelled += tokens
        elif again:
            self.repeated += tokens
        else:
            self.failed += tokens


@dataclass(slots=True)
class Tally:
    """Counts of one group of requests; each request is offered once and ends once, attempts may be more.

    Attributes:
        offered: Requests that arrived.
        completed: ... and completed, in time or not.
        met: ... and met every target.
        abandoned: ... and were given up by their client.
        rejected: ... and were turned away.
        failed: ... and failed for good.
        repeats: Attempts after the first.
        output_tokens: Of completed requests.
        good_tokens: Of those that met their targets.
        waste: Tokens computed for nothing.
    """

    offered: int = 0
    completed: int = 0
    met: int = 0
    abandoned: int = 0
    rejected: int = 0
    failed: int = 0
    repeats: int = 0
    output_tokens: int = 0
    good_tokens: int = 0
    waste: Waste = field(default_factory=Waste)

    @property
    def running(self) -> int:
        """Requests that were offered and have not ended."""
        return self.offered - self.completed - self.abandoned - self.rejected - self.failed

    @property
    def attainment_finished(self) -> float:
        """Share of completed requests that met their targets; 0 without any."""
        return self.met / self.completed if self.completed else 0.0

    @property
    def attainment_offered(self) -> float:
        """Share of all offered requests that did."""
        return self.met / self.offered if self.offered else 0.0


Key = tuple[str, str, str]
"""Class, tenant, tier."""


class GoodputBook:
    """Tallies in all and by class, tenant and tier, from the outcomes of attempts.

    Memory grows with the names only; names come from the fleet file.
    """

    def __init__(self) -> None:
        self.total = Tally()
        self.by_class: dict[str, Tally] = {}
        self.by_tenant: dict[str, Tally] = {}
        self.by_tier: dict[str, Tally] = {}

    def offered(self, key: Key) -> None:
        """A request arrives for the first time."""
        for tally in self._tallies(key):
            tally.offered += 1

    def ended(self, key: Key, outcome: Outcome, slo: Slo, again: bool, recomputed_tokens: int = 0) -> None:
        """An attempt ended.

        Args:
            key: Class, tenant and tier of the request.
            outcome: How; its times count from the request's first arrival.
            slo: Targets of the class.
            again: The request will be tried again: this attempt does not end it.
            recomputed_tokens: What the engine had to compute twice.
        """
        status = outcome.status
        done = status is Status.COMPLETED
        met = done and slo.met(outcome.ttft_s, outcome.e2e_s, outcome.output_tokens)
        tokens = computed_tokens(outcome)
        for tally in self._tallies(key):
            tally.waste.add(status, tokens, met, again)
            tally.waste.preempted += recomputed_tokens
            if again:
                tally.repeats += 1
            elif done:
                tally.completed += 1
                tally.met += met
                tally.output_tokens += outcome.output_tokens
                tally.good_tokens += outcome.output_tokens if met else 0
            elif status is Status.CANCELLED:
                tally.abandoned += 1
            elif status in (Status.REJECTED, Status.CLIENT_ERROR):
                tally.rejected += 1
            else:
                tally.failed += 1

    def _tallies(self, key: Key) -> tuple[Tally, Tally, Tally, Tally]:
        kind, tenant, tier = key
        return (
            self.total,
            self.by_class.setdefault(kind, Tally()),
            self.by_tenant.setdefault(tenant, Tally()),
            self.by_tier.setdefault(tier, Tally()),
        )


def computed_tokens(outcome: Outcome) -> int:
    """Tokens that an engine computed for an attempt, as far as its outcome tells.

    Without a first token it is not known how much of the prompt was computed; then nothing is counted.
    """
    if outcome.output_tokens <= 0 or outcome.endpoint < 0:
        return 0
    return max(outcome.input_tokens - outcome.cached_tokens, 0) + outcome.output_tokens
