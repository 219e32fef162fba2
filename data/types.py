"""Requests, service targets and outcomes: the words that every other part uses.

Units stand in the names: ``_s`` seconds, ``_tokens`` tokens. Times are seconds since the start of the trace
(simulator) or since the epoch (service); one run never mixes the two.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

NO_PARENT = -1


@dataclass(frozen=True, slots=True)
class Slo:
    """Targets of one workload class; an absent target is not checked.

    Attributes:
        ttft_s: Time to first token, at most.
        tpot_s: Mean time per output token after the first, at most; needs at least 2 output tokens.
        deadline_s: Whole response after arrival, at most (batch classes).
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    deadline_s: float | None = None

    def met(self, ttft_s: float, e2e_s: float, output_tokens: int) -> bool:
        """Whether a completed request with these times meets every target that is set."""
        if self.ttft_s is not None and not ttft_s <= self.ttft_s:
            return False
        if self.deadline_s is not None and not e2e_s <= self.deadline_s:
            return False
        if self.tpot_s is not None and output_tokens >= 2:
            return (e2e_s - ttft_s) / (output_tokens - 1) <= self.tpot_s
        return True


@dataclass(frozen=True, slots=True)
class Request:
    """One request as a trace tells it.

    ``output_tokens`` is the true length: only the simulated engine may read it. A router sees the budget.

    Attributes:
        request_id: Unique within the trace, counted from 0 in arrival order where the trace has no id.
        arrival_s: Arrival since the trace's start. For a closed-loop turn (``parent_id`` set) the arrival is
            the parent's completion plus ``think_time_s`` and this value is only the recorded one.
        input_tokens: Prompt length, at least 1.
        output_tokens: Tokens that the request will generate, at least 1.
        output_budget: Bound the caller gives (``max_tokens``), at least ``output_tokens``.
        block_hashes: One opaque 64-bit id for each *complete or partial* prompt block; equal ids at equal
            positions mean an equal prefix up to and including that block. Empty when the trace has no prefix.
        block_tokens: Tokens of one block.
        parent_id: Request whose completion starts this one, or ``NO_PARENT``.
        think_time_s: Client time between the parent's completion and this arrival.
    """

    request_id: int
    arrival_s: float
    input_tokens: int
    output_tokens: int
    output_budget: int
    block_hashes: tuple[int, ...] = ()
    block_tokens: int = 512
    model: str = ""
    tenant: str = ""
    workload_class: str = ""
    origin: str = ""
    session_id: str = ""
    parent_id: int = NO_PARENT
    think_time_s: float = 0.0


class Status(enum.IntEnum):
    """How an attempt ended. The value is what the log stores; append, never renumber."""

    COMPLETED = 0
    FAILED = 1
    """Server side: crash, lost connection, 5xx."""
    CANCELLED = 2
    """By the client, its time-out included."""
    REJECTED = 3
    """Refused before prefill; ``reason`` says why."""
    CLIENT_ERROR = 4
    """The request itself was wrong (4xx but 429); never a latency sample."""


class RefusalReason(enum.StrEnum):
    """Closed list of reasons for a refusal."""

    NO_ENDPOINT = "no_endpoint"
    NO_PERMITTED_SITE = "no_permitted_site"
    CONTEXT_TOO_LONG = "context_too_long"
    UNKNOWN_MODEL = "unknown_model"
    UNKNOWN_TENANT = "unknown_tenant"
    UNKNOWN_CLASS = "unknown_class"
    ALL_UNHEALTHY = "all_unhealthy"
    OVERLOADED = "overloaded"
    QUEUE_FULL = "queue_full"
    EXPIRED = "expired"
    BUDGET_EXHAUSTED = "budget_exhausted"
    INVALID_REQUEST = "invalid_request"
    SHUTTING_DOWN = "shutting_down"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one attempt of one request.

    ``ttft_s`` and ``e2e_s`` count from the *first arrival* of the request, so a retry pays for its earlier
    attempts. Without a first token ``ttft_s`` is NaN and ``e2e_s`` is the time until the attempt ended.
    """

    request_id: int
    attempt: int
    status: Status
    workload_class: str
    tenant: str
    endpoint: int
    arrival_s: float
    finished_s: float
    ttft_s: float
    e2e_s: float
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    preemptions: int = 0
    reason: str = ""

    @property
    def tpot_s(self) -> float:
        """Mean time per output token after the first; NaN below 2 output tokens."""
        if self.output_tokens < 2:
            return math.nan
        return (self.e2e_s - self.ttft_s) / (self.output_tokens - 1)


UIntArray = npt.NDArray[np.uint64]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TraceBatch:
    """Many requests as columns: the unit in which traces are read, written and converted.

    All columns have one entry a request; ``hash_offsets`` has one more. The hashes of request ``i`` are
    ``hashes[hash_offsets[i]:hash_offsets[i + 1]]``. An empty text column means all "".
    """

    request_id: IntArray
    arrival_s: FloatArray
    input_tokens: IntArray
    output_tokens: IntArray
    output_budget: IntArray
    hash_offsets: IntArray
    hashes: UIntArray
    block_tokens: int = 512
    parent_id: IntArray | None = None
    think_time_s: FloatArray | None = None
    model: Sequence[str] = field(default=())
    tenant: Sequence[str] = field(default=())
    workload_class: Sequence[str] = field(default=())
    origin: Sequence[str] = field(default=())
    session_id: Sequence[str] = field(default=())

    def __len__(self) -> int:
        return len(self.arrival_s)

    def rows(self) -> Iterator[Request]:
        """The same requests one by one, in order."""
        n = len(self)
        blank: Sequence[str] = ("",) * n
        offsets = self.hash_offsets.tolist()
        hashes = self.hashes.tolist()
        parents = self.parent_id.tolist() if self.parent_id is not None else (NO_PARENT,) * n
        thinks = self.think_time_s.tolist() if self.think_time_s is not None else (0.0,) * n
        columns = zip(
            self.request_id.tolist(),
            self.arrival_s.tolist(),
            self.input_tokens.tolist(),
            self.output_tokens.tolist(),
            self.output_budget.tolist(),
            self.model or blank,
            self.tenant or blank,
            self.workload_class or blank,
            self.origin or blank,
            self.session_id or blank,
            parents,
            thinks,
            strict=True,
        )
        for i, row in enumerate(columns):
            rid, at, n_in, n_out, budget, model, tenant, kind, origin, session, parent, think = row
            yield Request(
                request_id=rid,
                arrival_s=at,
                input_tokens=n_in,
                output_tokens=n_out,
                output_budget=budget,
                block_hashes=tuple(hashes[offsets[i] : offsets[i + 1]]),
                block_tokens=self.block_tokens,
                model=model,
                tenant=tenant,
                workload_class=kind,
                origin=origin,
                session_id=session,
                parent_id=parent,
                think_time_s=think,
            )
