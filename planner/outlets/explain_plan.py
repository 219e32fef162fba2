"""A plan in sentences: what it is, what it leaves unmet and why, what each move costs and brings."""

from __future__ import annotations

from typing import Literal, NamedTuple

from data.plan import Move, PlanDocument, PlanStatus, ShadowPrice

About = Literal["plan", "promise", "demand", "move", "price", "notice"]
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
        if row.what == "reservation" and " missing; " in row.reason:
            lines.append(Sentence(about, f"{row.reason} (promised to {row.tenant})"))
            continue
        whose = " / ".join(part for part in (row.tenant, row.model, row.workload_class) if part)
        missing = f" {row.missing:,.4g} {row.unit} missing" if row.missing else ""
        head = f"{row.what.replace('_', ' ')} of {whose}:" if whose else ""
        lines.append(Sentence(about, f"{head}{missing}{'; ' if missing else ' '}{row.reason}".strip()))
    lines += [Sentence("move", move_text(move)) for move in plan.moves]
    lines += [Sentence("price", price_text(price)) for price in plan.prices]
    order = ("plan", "promise", "demand", "move", "price", "notice")
    return sorted(lines, key=lambda line: order.index(line.about))


def move_text(move: Move) -> str:
    """What a move is for, when it begins, what it brings, gives up and costs, and what stops one more."""
    verb = "start" if move.change > 0 else "drain"
    parts = [f"{verb} {abs(move.change)} of {move.config} at {move.site}: {move.reason}"]
    if move.begin_s:
        parts.append(moments_text(move))
    if move.gain is not None:
        parts.append(f"brings {move.gain:,.0f} value-weighted tokens/s")
    if move.gives_up:
        what = "its GPUs are worth that to others" if move.change > 0 else "its replicas would still serve that"
        parts.append(f"gives up {move.gives_up:,.0f} tokens/s ({what})")
    if move.cost or move.lost_cache:
        lost = f", {move.lost_cache:,.0f} of them for lost caches" if move.lost_cache else ""
        parts.append(f"costs {move.cost + move.lost_cache:,.0f} value-weighted tokens{lost}")
    if move.binding:
        parts.append("one more is stopped by " + ", ".join(move.binding))
    return "; ".join(parts)


def moments_text(move: Move) -> str:
    """When the replicas of a move begin and how long each takes: ``begins at once, lasts 42 s``."""
    first, last = move.begin_s[0], move.begin_s[-1]
    when = (
        "at once"
        if last == 0
        else f"after {first:,.0f} s"
        if first == last
        else f"after {first:,.0f} to {last:,.0f} s"
    )
    return f"begins {when}, lasts {move.lasts_s:,.0f} s"


def price_text(price: ShadowPrice) -> str:
    """``one more H100 at C is worth 1,200 value-weighted tokens/s (950 tokens/s)``."""
    amount = "one" if price.amount == 1 else f"{price.amount:,.0f}"
    names = {"power": "kW of power", "ingress": "tokens/s of ingress", "host_memory": "GB of host memory"}
    what = price.gpu_type or names.get(price.resource, "GPU of start budget")
    text = f"{amount} more {what} at {price.site} "
    worth = f"is worth {price.worth:,.0f} value-weighted tokens/s ({price.tokens_per_s:,.0f} tokens/s)"
    return f"{text}keeps {price.mends}, and {worth}" if price.mends else text + worth
