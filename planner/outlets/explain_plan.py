"""A plan in sentences: what it is, what it leaves unmet and why, what each move costs and brings."""

from __future__ import annotations

from typing import Literal, NamedTuple

from data.plan import PlanDocument, PlanStatus

About = Literal["plan", "promise", "demand", "move", "notice"]
STATUS = {
    PlanStatus.OPTIMAL: "no plan is better by more than {gap:.1%}",
    PlanStatus.FEASIBLE_LIMIT: "a limit ended the search; no plan is better by more than {gap:.1%}",
    PlanStatus.KEPT_LAST: "what ran before stays; no plan is better by more than {gap:.1%}",
    PlanStatus.GREEDY: "the solver had no answer, the fallback made the plan; the bound is {gap:.1%} away",
    PlanStatus.INFEASIBLE: "no plan keeps every promise; this one keeps as many as it can",
}
PROMISES = ("reservation", "site_loss")


class Sentence(NamedTuple):
    """One sentence and what it is about."""

    about: About
    text: str


def explain_plan(plan: PlanDocument) -> list[Sentence]:
    """All sentences, the most important first."""
    gpus = sum(row.replicas * row.gpus_per_replica for row in plan.replicas)
    count = sum(row.replicas for row in plan.replicas)
    lines = [
        Sentence("plan", f"{plan.status.value}: {STATUS[plan.status].format(gap=plan.gap)} ({plan.bound_name})"),
        Sentence(
            "plan",
            f"{count} replicas on {gpus} GPUs, {plan.goodput_tokens_per_s:,.0f} output tokens/s expected",
        ),
    ]
    for row in plan.unmet:
        about: About = "promise" if row.what in PROMISES else "notice" if row.what == "notice" else "demand"
        whose = " / ".join(part for part in (row.tenant, row.model, row.workload_class) if part)
        missing = f" {row.missing:,.4g} {row.unit} missing" if row.missing else ""
        head = f"{row.what.replace('_', ' ')} of {whose}:" if whose else ""
        lines.append(Sentence(about, f"{head}{missing}{'; ' if missing else ' '}{row.reason}".strip()))
    for move in plan.moves:
        verb = "start" if move.change > 0 else "drain"
        price = f"; costs {move.cost:,.0f} value-weighted tokens" if move.cost else ""
        lines.append(
            Sentence("move", f"{verb} {abs(move.change)} of {move.config} at {move.site}: {move.reason}{price}")
        )
    order = ("plan", "promise", "demand", "move", "notice")
    return sorted(lines, key=lambda line: order.index(line.about))
