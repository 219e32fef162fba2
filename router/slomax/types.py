"""What a flow control is asked and what it answers: the same in the service and in the simulator.

A flow control stands between the arrival of a request and the choice of its endpoint. It does no I/O and reads no
clock: the caller passes the time, and does what the answers say.

The caller's loop: ``offer`` each arrival; after every ``offer``, ``first_token``, ``finished``, ``cancel`` and
wake-up call ``next`` until it gives ``None``, and carry out each answer *before* the next call, because the
dispatch must be charged to the endpoint table first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from data.fleet.types import Fleet
from data.types import IntArray, Outcome, RefusalReason
from router.types import RouteRequest

Candidates = Callable[[RouteRequest], IntArray]
"""The hard filters: row numbers, ascending, of the endpoints that may serve a request now."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that asks to be let in.

    Attributes:
        request: What is asked; its class is final.
        arrived_s: First arrival of the request. Targets and waiting time count from here, also for a retry.
        ttl_s: The caller's own bound on waiting, seconds after the arrival; ``None`` = none.
        again: It was offered before, when no engine was up, and has been held since.
    """

    request: RouteRequest
    arrived_s: float
    ttl_s: float | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class Admitted:
    """Go at once to one of ``rows``."""

    rows: IntArray


@dataclass(frozen=True, slots=True)
class Queued:
    """Wait; ``next`` gives the ticket back when its turn has come or its time is over."""

    ticket: int
    expected_wait_s: float


@dataclass(frozen=True, slots=True)
class Refused:
    """Turned away before any work was done for it; nothing was charged.

    Attributes:
        reason: Why.
        status: HTTP status (429 or 503 where another try may help, 4xx else).
        retry_after_s: When to try again, seconds (1 or more, finite).
    """

    reason: RefusalReason
    status: int
    retry_after_s: float


Verdict = Admitted | Queued | Refused


@dataclass(frozen=True, slots=True)
class Ready:
    """A waiting request whose turn has come: dispatch it to one of ``rows`` now."""

    ticket: int
    request: RouteRequest
    rows: IntArray
    waited_s: float


@dataclass(frozen=True, slots=True)
class Dropped:
    """A waiting request that must not be sent any more."""

    ticket: int
    request: RouteRequest
    refused: Refused
    waited_s: float


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """What waits in one queue. ``oldest_s`` is the longest time that one of them has waited so far."""

    model: str
    workload_class: str
    requests: int
    tokens: int
    oldest_s: float
    expected_wait_s: float


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """State of one tenant's budgets; ``None`` = not limited. Token counts are input plus output tokens."""

    tenant: str
    tokens_left: float | None
    tokens_per_s: float | None
    requests_left: float | None
    requests_per_s: float | None
    reserved_tokens: float
    in_flight: int
    concurrent: int | None = None


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """Everything that waits, and all budgets."""

    queues: tuple[QueueStatus, ...]
    budgets: tuple[BudgetStatus, ...]


class FlowControl(Protocol):
    """Decides who waits, who goes and who is turned away."""

    @property
    def name(self) -> str:
        """Registry name."""
        ...

    def offer(self, arrival: Arrival, now_s: float) -> Verdict:
        """A request (or a further attempt of one) asks to be let in."""
        ...

    def cancel(self, ticket: int, now_s: float) -> bool:
        """The caller of a waiting request has gone; gives whether it was still waiting."""
        ...

    def next(self, now_s: float) -> Ready | Dropped | None:
        """The next waiting request to act on now, or ``None``. A ticket is given at most once."""
        ...

    def wakeup_s(self, now_s: float) -> float:
        """When ``next`` should be asked again although nothing happened; infinite if there is no need."""
        ...

    def dispatched(self, request: RouteRequest, endpoint: int, now_s: float) -> None:
        """An admitted or ready request was sent to ``endpoint``."""
        ...

    def first_token(self, request: RouteRequest, endpoint: int, now_s: float) -> None:
        """Its first token came."""
        ...

    def finished(self, request: RouteRequest, outcome: Outcome) -> None:
        """The attempt ended, however; called once for each dispatch."""
        ...

    def abandoned(self, request: RouteRequest, now_s: float) -> None:
        """An admitted or ready request could not be sent after all; what it held is given back."""
        ...

    def endpoint_reset(self, endpoint: int) -> None:
        """The endpoint left or came back as another process: nothing that was sent there is in progress."""
        ...

    def set_quotas(self, quotas: Mapping[tuple[str, str], float], now_s: float) -> None:
        """Another capacity split, in output tokens/s of (model, class); who waits stays."""
        ...

    def set_fleet(
        self, fleet: Fleet, now_s: float, again: Callable[[RouteRequest], RouteRequest | None]
    ) -> list[int]:
        """Another fleet file is in force; who waits stays.

        Args:
            fleet: Its classes and tenants.
            now_s: The clock.
            again: Gives a waiting request as it reads under the new file, ``None`` = it no longer has a place.

        Gives the tickets of those that have none; they are not given by ``next`` any more.
        """
        ...

    def status(self, now_s: float) -> FlowStatus:
        """What waits, and the state of every budget."""
        ...


@runtime_checkable
class PaysDebts(Protocol):
    """A flow control that shares by weight, and can weigh what tenants are owed."""

    def set_debts(self, factor: Callable[[str, str], float]) -> None:
        """From now on a tenant's weight in a class counts times ``factor(class, tenant)``, 1 or more."""
        ...
