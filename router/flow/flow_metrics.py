"""What a scrape reads of queues, budgets and the books of Goodput."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from data.fleet.types import Fleet
from router.flow.flow_desk import FlowDesk
from router.goodput import GoodputBook
from router.observe.metrics import Sample
from router.slomax.corrections import Corrections
from router.slomax.expected import expected_of


def flow_samples(desk: FlowDesk, fleet: Fleet, tenant_label: Callable[[str], str]) -> Iterator[Sample]:
    """Queues and budgets as of the last upkeep, and what is corrected; an empty queue is told as such.

    Args:
        desk: The flow control.
        fleet: Its models and classes are the queues that there are.
        tenant_label: Label value of a tenant; those beyond its bound share one and are left out.
    """
    status = desk.seen
    waiting = {(queue.model, queue.workload_class): queue for queue in status.queues}
    names = {(model.key, kind.name) for model in fleet.models for kind in fleet.classes}
    for labels in sorted(names | set(waiting)):
        queue = waiting.get(labels)
        yield Sample("queue_requests", labels, float(queue.requests) if queue else 0.0)
        yield Sample("queue_tokens", labels, float(queue.tokens) if queue else 0.0)
        yield Sample("queue_oldest_seconds", labels, queue.oldest_s if queue else 0.0)
    yield Sample("held_requests", (), float(desk.held))
    for budget in status.budgets:
        limited = (budget.tokens_per_s, budget.requests_per_s, budget.concurrent) != (None, None, None)
        if not limited or tenant_label(budget.tenant) != budget.tenant:
            continue
        for unit, left in (("tokens", budget.tokens_left), ("requests", budget.requests_left)):
            if left is not None:
                yield Sample("tenant_budget_left", (budget.tenant, unit), left)
        yield Sample("tenant_reserved_tokens", (budget.tenant,), budget.reserved_tokens)
        yield Sample("tenant_requests_in_flight", (budget.tenant,), float(budget.in_flight))
    if desk.corrected is not None:
        yield from correction_samples(desk.corrected.corrections, fleet, tenant_label)


def correction_samples(
    corrections: Corrections, fleet: Fleet, tenant_label: Callable[[str], str]
) -> Iterator[Sample]:
    """What the feedback corrects; 1 where nothing is known.

    Args:
        corrections: As they are now.
        fleet: Its models and classes, and the tenants that it promises a rate.
        tenant_label: As in :func:`flow_samples`.
    """
    for model, kind in sorted((model.key, one.name) for model in fleet.models for one in fleet.classes):
        key = model, kind
        yield Sample("admitted_share", key, corrections.admission.get(key, 1.0))
        yield Sample("admitted_repeats_share", key, corrections.repeats.get(key, 1.0))
        yield Sample("capacity_correction", key, corrections.capacity.get(key, 1.0))
    for kind, tenant in sorted(expected_of(fleet, ()).guarantees):
        if tenant_label(tenant) == tenant:
            yield Sample("tenant_debt_factor", (kind, tenant), corrections.debt.get((kind, tenant), 1.0))


def goodput_samples(book: GoodputBook) -> Iterator[Sample]:
    """Tokens computed for nothing, by class and cause."""
    for kind, tally in list(book.by_class.items()):
        for cause, tokens in tally.waste.by_cause().items():
            yield Sample("wasted_tokens", (kind, cause), float(tokens))
