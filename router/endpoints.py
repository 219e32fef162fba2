"""The endpoint table: all a router knows about engine instances, one row each, columns as numpy arrays.

Three kinds of column: *identity* (fixed), *report* (what the engine last said, with its time) and *local*
(what this router itself has in flight: charged at decision time, released exactly once). A report never erases
local counts; ``sent_*_since_report`` is what was sent after the report's own sample time.

Rows are slots. An endpoint that leaves frees its row, a new one is put into a free row, and ``version`` tells
users to renew what they derived from identity columns. Row numbers of the others never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data.catalog.types import ServiceTimes


@dataclass(frozen=True, slots=True)
class EndpointSpec:
    """Identity of one engine instance."""

    endpoint_id: str
    site: str
    model: str
    config: str
    gpu_type: str
    gpus: int
    times: ServiceTimes
    kv_capacity_tokens: int
    batch_token_budget: int
    max_seqs: int
    context_limit_tokens: int
    prefix_block_tokens: int = 16
    load_s: float = 60.0
    """From start command to ready, the engine's warm-up included."""


VACANT = EndpointSpec(
    endpoint_id="",
    site="",
    model="",
    config="",
    gpu_type="",
    gpus=1,
    times=ServiceTimes(p0=0.0, p1=0.0, p2=0.0, d0=0.0, d1=0.0, d2=0.0),
    kv_capacity_tokens=1,
    batch_token_budget=1,
    max_seqs=1,
    context_limit_tokens=1,
)
"""Identity of a free row: it serves no model, so no filter lets it through."""


class EndpointTable:
    """Columns over endpoints; row ``i`` is ``specs[i]``. Mutated in place by whoever owns it, read by policies.

    Attributes:
        version: Counts up whenever the identity of a row changes.
    """

    def __init__(self, specs: Sequence[EndpointSpec]) -> None:
        n = len(specs)
        self.version = 0
        self.specs = tuple(specs)
        # identity
        self.sites = np.array([s.site for s in specs], dtype=object)
        self.models = np.array([s.model for s in specs], dtype=object)
        self.gpu_types = np.array([s.gpu_type for s in specs], dtype=object)
        self.gpus = np.array([s.gpus for s in specs], dtype=np.float64)
        self.p0 = np.array([s.times.p0 for s in specs])
        self.p1 = np.array([s.times.p1 for s in specs])
        self.p2 = np.array([s.times.p2 for s in specs])
        self.d0 = np.array([s.times.d0 for s in specs])
        self.d1 = np.array([s.times.d1 for s in specs])
        self.d2 = np.array([s.times.d2 for s in specs])
        self.host_overhead = np.array([s.times.host_overhead for s in specs])
        self.kv_capacity_tokens = np.array([s.kv_capacity_tokens for s in specs], dtype=np.float64)
        self.batch_token_budget = np.array([s.batch_token_budget for s in specs], dtype=np.float64)
        self.max_seqs = np.array([s.max_seqs for s in specs], dtype=np.float64)
        self.context_limit_tokens = np.array([s.context_limit_tokens for s in specs], dtype=np.float64)
        # life cycle
        self.ready = np.ones(n, dtype=bool)
        self.draining = np.zeros(n, dtype=bool)
        self.healthy = np.ones(n, dtype=bool)
        self.incarnation = np.zeros(n, dtype=np.int64)
        # last report; NaN = never reported
        self.reported_at_s = np.full(n, np.nan)
        self.running = np.full(n, np.nan)
        self.waiting = np.full(n, np.nan)
        self.kv_use = np.full(n, np.nan)
        # local accounting
        self.inflight = np.zeros(n)
        self.inflight_uncached_tokens = np.zeros(n)
        """Uncached prompt tokens sent here whose first token has not come yet."""
        self.waiting_prefill_s = np.zeros(n)
        """Predicted prefill time of those same requests: sum of ``p1·u + p2·u·(hit + u/2)`` over their uncached
        tokens ``u``, without the fixed part of a step (requests share steps)."""
        self.prefill_since_s = np.full(n, np.nan)
        """When the oldest of them became the head: set to the clock when the first one is sent to an endpoint
        without any and at each first token there; meaningless while ``inflight_uncached_tokens`` is 0."""
        self.inflight_tokens = np.zeros(n)
        """Prompt plus expected output tokens of everything in flight here."""
        self.recent_prefill_s = np.zeros(n)
        """Predicted prefill time of all that was sent here, fading with ``PREFILL_LOAD_HALF_LIFE_S``, as of"""
        self.recent_prefill_at_s = np.zeros(n)
        """... the moment of the latest dispatch."""
        self.decoding = np.zeros(n)
        """Requests in flight here that have had their first token."""
        self.sent_since_report = np.zeros(n)
        self.sent_uncached_since_report = np.zeros(n)
        self.completed = np.zeros(n)

    def __len__(self) -> int:
        return len(self.specs)

    def put(self, row: int, spec: EndpointSpec) -> None:
        """Give ``row`` a new identity, not ready yet; ``VACANT`` frees it.

        Reports and local counts are the lease book's to forget (``LeaseBook.drop_endpoint``).
        """
        specs = list(self.specs)
        specs[row] = spec
        self.specs = tuple(specs)
        fresh = EndpointTable([spec])
        for column in IDENTITY:
            getattr(self, column)[row] = getattr(fresh, column)[0]
        self.ready[row] = False
        self.draining[row] = False
        self.healthy[row] = True
        self.version += 1

    def grow(self, rows: int) -> None:
        """Append vacant rows until there are ``rows``; columns become new, longer arrays.

        Raises:
            ValueError: If the table is longer already.
        """
        more = rows - len(self)
        if more < 0:
            raise ValueError(f"a table of {len(self)} rows does not shrink to {rows}")
        vacant = EndpointTable([VACANT] * more)
        vacant.ready[:] = False
        for column, values in vars(vacant).items():
            if isinstance(values, np.ndarray):
                setattr(self, column, np.concatenate([getattr(self, column), values]))
        self.specs += vacant.specs
        self.version += 1


IDENTITY = (
    "sites",
    "models",
    "gpu_types",
    "gpus",
    "p0",
    "p1",
    "p2",
    "d0",
    "d1",
    "d2",
    "host_overhead",
    "kv_capacity_tokens",
    "batch_token_budget",
    "max_seqs",
    "context_limit_tokens",
)
"""Columns that ``EndpointTable.put`` sets from the spec."""
