"""Feedback of SLOMax: what really became of the requests corrects what is planned, admitted and owed.

It reads no clock and does no I/O: tell it arrivals and ends with ``offered`` and ``ended``, ask ``step`` for the
corrections. Nothing changes between two steps, and without enough evidence nothing changes at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from data.types import Outcome, Slo, Status
from router.slomax.corrections import ANY_CLASS, NEUTRAL, ClassTenant, Corrections, PoolClass
from router.slomax.evidence import verdict
from router.slomax.feedback_laws import Admission, Capacity, Debt, Repeats, blend
from router.slomax.feedback_settings import FeedbackSettings
from router.slomax.feedback_state import FeedbackState, PoolState, TenantState

MOST_EVIDENCE = 10
"""A judgement looks back over this many times the least number of requests at most."""
ERRORS = 1.5
"""The attainment is taken to be known to this many standard errors."""
LOAD_TAU_S = 30.0
RESPONSE_TAU = 50.0
"""Ended requests over which the mean response time is averaged."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the running plan promises; rates are output tokens/s.

    Attributes:
        planned: What the pool's part carries for the class by the capacity table, *uncorrected*.
        guarantees: Guaranteed rate of a tenant in a class, or in ``ANY_CLASS``.
    """

    planned: Mapping[PoolClass, float] = field(default_factory=dict)
    guarantees: Mapping[ClassTenant, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Window:
    """Counts since the last step; ``fresh`` ones only of requests that arrived after the last change."""

    firsts: int = 0
    repeats: int = 0
    offered_tokens: float = 0.0
    good_tokens: float = 0.0
    ended: int = 0
    met: int = 0
    fresh_ended: int = 0
    fresh_met: int = 0

    def attainment(self, least: int) -> float | None:
        """Share of the ended that met their targets; ``None`` below ``least`` of them."""
        return self.met / self.ended if self.ended >= least else None

    def clear(self) -> None:
        """Start a new period; what is fresh goes on until it was judged."""
        self.firsts = self.repeats = self.ended = self.met = 0
        self.offered_tokens = self.good_tokens = 0.0


@dataclass(slots=True)
class _Pool:
    """Laws and counts of one pool and class."""

    window: _Window = field(default_factory=_Window)
    admission: Admission = field(default_factory=Admission)
    capacity: Capacity = field(default_factory=Capacity)
    repeats: Repeats = field(default_factory=Repeats)
    changed_s: float = -math.inf
    response_s: float = 0.0
    load: float = 0.0


@dataclass(slots=True)
class _Tenant:
    """Debt and counts of one tenant in a class."""

    debt: Debt = field(default_factory=Debt)
    offered_tokens: float = 0.0
    good_tokens: float = 0.0


class Feedback:
    """See the module. Memory grows with pools, classes and tenants only.

    Args:
        settings: Bands and steps.
        now_s: The clock.
        expected: Of the running plan; see ``expect``.

    Attributes:
        corrections: As of the last step.
    """

    def __init__(
        self, settings: FeedbackSettings | None = None, now_s: float = 0.0, expected: Expected | None = None
    ) -> None:
        self.settings = settings or FeedbackSettings()
        self.corrections: Corrections = NEUTRAL
        self.expected = expected or Expected()
        self._pools: dict[PoolClass, _Pool] = {}
        self._tenants: dict[ClassTenant, _Tenant] = {}
        self._stepped_s = now_s

    @property
    def due_s(self) -> float:
        """When the next step will do something."""
        return self._stepped_s + self.settings.step_s

    def expect(self, expected: Expected) -> None:
        """Another plan runs; what was learned stays."""
        self.expected = expected

    def offered(self, pool: str, workload_class: str, tenant: str, attempt: int, tokens: float) -> None:
        """An attempt arrives, let in or not.

        Args:
            pool: Pool that would serve it, such as a model.
            workload_class: Its class.
            tenant: Its tenant.
            attempt: 0 for the first.
            tokens: Expected output tokens.
        """
        window = self._pool(pool, workload_class).window
        if attempt > 0:
            window.repeats += 1
            return
        window.firsts += 1
        window.offered_tokens += tokens
        for owed in self._owed(workload_class, tenant):
            owed.offered_tokens += tokens

    def ended(self, pool: str, outcome: Outcome, slo: Slo, hopeful: bool = True) -> None:
        """An attempt ended. Refusals and clients that left in time tell nothing about the pool.

        Args:
            pool: As in ``offered``.
            outcome: How it ended.
            slo: Targets of its class.
            hopeful: It was sent while its target could still be met. What comes back after a refusal, or has
                waited too long, is late whatever the engine does: to admit less for it would make more of it.
        """
        met = verdict(outcome, slo)
        if met is False and not hopeful and outcome.status is not Status.FAILED:
            met = None
        if met is None:
            return
        state = self._pool(pool, outcome.workload_class)
        window = state.window
        window.ended += 1
        window.met += met
        if outcome.arrival_s >= state.changed_s:
            window.fresh_ended += 1
            window.fresh_met += met
        state.response_s += (outcome.e2e_s - state.response_s) / RESPONSE_TAU
        if met:
            window.good_tokens += outcome.output_tokens
            for owed in self._owed(outcome.workload_class, outcome.tenant):
                owed.good_tokens += outcome.output_tokens

    def step(self, now_s: float) -> Corrections:
        """The corrections; the same value again until the next step is due."""
        dt_s = now_s - self._stepped_s
        if dt_s < self.settings.step_s:
            return self.corrections
        self._stepped_s = now_s
        for key, state in self._pools.items():
            self._step_pool(key, state, now_s, dt_s)
        for owed, tenant in self._tenants.items():
            self._step_tenant(owed, tenant, dt_s)
        self.corrections = self._published()
        return self.corrections

    def state(self) -> FeedbackState:
        """Everything that a restart must not lose, sorted by name."""
        pools = tuple(
            PoolState(
                *key,
                share=one.admission.share,
                raise_by=one.admission.raise_by,
                wait=one.admission.wait,
                backoff=one.admission.backoff,
                raised=one.admission.raised,
                before=one.admission.before,
                ceiling=one.admission.ceiling,
                load_at_cut=one.admission.load_at_cut,
                average=one.capacity.average,
                factor=one.capacity.factor,
                repeat_share=one.repeats.share,
                flood=one.repeats.flood,
                load=one.load,
            )
            for key, one in sorted(self._pools.items())
        )
        tenants = tuple(TenantState(*key, one.debt.seconds) for key, one in sorted(self._tenants.items()))
        return FeedbackState(pools, tenants)

    def restore(self, state: FeedbackState, age_s: float, now_s: float) -> Corrections:
        """Go on where a state of ``age_s`` seconds ago was; an old one has gone part of the way to neutral."""
        settings = self.settings
        for row in state.pools:
            one = self._pool(row.pool, row.workload_class)
            share = min(max(blend(row.share, 1.0, age_s, settings.forget_s), settings.admission_floor), 1.0)
            backoff = min(row.backoff, settings.most_backoff)
            one.admission = Admission(
                share, row.raise_by, row.wait, backoff, row.raised, row.before, row.ceiling, row.load_at_cut
            )
            low, high = settings.capacity_low, settings.capacity_high
            average, factor = (blend(v, 1.0, age_s, settings.forget_s) for v in (row.average, row.factor))
            one.capacity = Capacity(min(max(average, low), high), min(max(factor, low), high))
            one.repeats = Repeats(blend(row.repeat_share, 1.0, age_s, settings.forget_s), row.flood)
            one.changed_s, one.load = now_s, row.load
        for debt in state.tenants:
            seconds = blend(debt.debt_s, 0.0, age_s, settings.debt_tau_s)
            self._tenant(debt.workload_class, debt.tenant).debt = Debt(min(seconds, settings.debt_full_s))
        self._stepped_s = now_s
        self.corrections = self._published()
        return self.corrections

    def _step_pool(self, key: PoolClass, state: _Pool, now_s: float, dt_s: float) -> None:
        window, settings = state.window, self.settings
        attainment = window.attainment(settings.least_requests)
        state.load = blend(state.load, window.offered_tokens / dt_s, dt_s, LOAD_TAU_S)
        settled_s = state.changed_s + min(max(state.response_s, settings.step_s), settings.settle_s)
        if window.fresh_ended >= settings.least_requests and now_s >= settled_s:
            attained, margin = _estimate(window)
            judgement = state.admission.step(attained, state.load, settings, margin)
            if judgement == "changed":
                state.changed_s = now_s
            if judgement != "unclear" or window.fresh_ended >= MOST_EVIDENCE * settings.least_requests:
                window.fresh_ended = window.fresh_met = 0
        if window.firsts or window.repeats:
            state.repeats.step(window.repeats / max(window.firsts, 1), attainment, settings)
        self._step_capacity(key, state, attainment, dt_s)
        window.clear()

    def _step_capacity(self, key: PoolClass, state: _Pool, attainment: float | None, dt_s: float) -> None:
        planned = self.expected.planned.get(key, 0.0)
        if planned <= 0.0:
            return
        window, settings = state.window, self.settings
        load = window.offered_tokens / dt_s
        full = load >= planned * state.capacity.factor * (1.0 - settings.capacity_band)
        if attainment is not None and (full or attainment < settings.attain_low):
            state.capacity.step(window.good_tokens / dt_s / min(planned, max(load, 1e-9)), dt_s, settings)
        elif attainment is None or attainment >= settings.attain_high:
            state.capacity.step(None, dt_s, settings)

    def _step_tenant(self, key: ClassTenant, tenant: _Tenant, dt_s: float) -> None:
        guarantee = self.expected.guarantees.get(key, 0.0)
        due = min(tenant.offered_tokens, guarantee * dt_s)
        # What was not asked for is not owed: the rest of the guarantee counts as delivered.
        share = 1.0 if guarantee <= 0.0 else 1.0 + (tenant.good_tokens - due) / (guarantee * dt_s)
        tenant.debt.step(share, dt_s, self.settings)
        tenant.offered_tokens = tenant.good_tokens = 0.0

    def _published(self) -> Corrections:
        pools = self._pools.items()
        return Corrections(
            capacity={key: one.capacity.factor for key, one in pools if one.capacity.factor != 1.0},
            admission={key: one.admission.share for key, one in pools if one.admission.share != 1.0},
            repeats={key: one.repeats.share for key, one in pools if one.repeats.share != 1.0},
            debt={key: one.debt.factor(self.settings) for key, one in self._tenants.items() if one.debt.seconds},
        )

    def _pool(self, pool: str, workload_class: str) -> _Pool:
        return self._pools.setdefault((pool, workload_class), _Pool())

    def _owed(self, workload_class: str, tenant: str) -> list[_Tenant]:
        """Accounts of the tenant's guarantees that a request of the class counts for."""
        keys = ((workload_class, tenant), (ANY_CLASS, tenant))
        return [self._tenant(*key) for key in keys if key in self.expected.guarantees]

    def _tenant(self, workload_class: str, tenant: str) -> _Tenant:
        return self._tenants.setdefault((workload_class, tenant), _Tenant())


def _estimate(window: _Window) -> tuple[float, float]:
    """Attainment of the fresh requests and its uncertainty; two imagined ones keep both away from 0 and 1."""
    count = window.fresh_ended
    attainment = (window.fresh_met + 1) / (count + 2)
    return attainment, ERRORS * math.sqrt(attainment * (1.0 - attainment) / count)
