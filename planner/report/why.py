"""Says in plain words which policy won, by how much, and what else changed with it.

Only figures of the runs are used. A difference is mentioned when its paired interval excludes zero, or, with too
few seeds for intervals, when it is large. It is told as a thing that changed along with Goodput, not as its cause.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner import measures as m
from planner.compare import ArmRuns, Comparison, group_estimate
from planner.intervals import paired_relative_difference
from planner.measures import Measure
from planner.report import numbers
from planner.sim.result import RunResult

LARGE = 0.05
"""Relative difference that counts without an interval."""
NOTABLE = 0.01
"""Relative difference below which a figure is not worth a word, however certain it is."""


def _mean_waiting(run: RunResult) -> float:
    waiting = np.asarray(run.timeline.waiting, dtype=float)
    return float(waiting.reshape(len(waiting), -1).sum(axis=1).mean()) if len(waiting) else math.nan


def _spread(run: RunResult) -> float:
    counts = np.asarray(run.endpoint_requests, dtype=float)
    return float(counts.max() / counts.mean()) if counts.size and counts.sum() > 0 else math.nan


def _computed_prompt_tokens(run: RunResult) -> float:
    return run.total.input_tokens * (1.0 - run.total.hit_rate)


def _lost_share(run: RunResult) -> float:
    total = run.total
    return (total.failed + total.cancelled + total.rejected) / total.offered if total.offered else math.nan


WAITING = Measure("mean_waiting", "Waiting requests, mean", "count", "lower", _mean_waiting)
SPREAD = Measure("busiest_replica", "Busiest replica against the mean", "count", "lower", _spread)
COMPUTED = Measure("computed_prompt", "Prompt tokens computed", "count", "lower", _computed_prompt_tokens)
LOST = Measure("lost", "Failed, cancelled or rejected", "share", "lower", _lost_share)


@dataclass(frozen=True, slots=True)
class Clue:
    """One figure that may explain a difference, and how to say it from (winner's value, other's value)."""

    measure: Measure
    say: Callable[[float, float], str]


CLUES = (
    Clue(
        m.HIT_RATE,
        lambda a, b: (
            f"{numbers.share(a)} of prompt tokens were found in a prefix cache, against {numbers.share(b)}"
        ),
    ),
    Clue(
        COMPUTED,
        lambda a, b: (
            f"replicas computed {numbers.share(abs(a / b - 1))} {'fewer' if a < b else 'more'} prompt tokens"
        ),
    ),
    Clue(
        WAITING,
        lambda a, b: f"{numbers.plain(a)} requests waited on average, against {numbers.plain(b)}",
    ),
    Clue(
        SPREAD,
        lambda a, b: f"the busiest replica took {a:.2f} times the mean number of requests, against {b:.2f} times",
    ),
    Clue(m.TTFT_P95, lambda a, b: f"TTFT P95 was {numbers.duration(a)}, against {numbers.duration(b)}"),
    Clue(m.TPOT_P95, lambda a, b: f"TPOT P95 was {numbers.duration(a)}, against {numbers.duration(b)}"),
    Clue(
        LOST,
        lambda a, b: (
            f"{numbers.share(a)} of requests failed, were cancelled or rejected, against {numbers.share(b)}"
        ),
    ),
    Clue(m.PREEMPTIONS, lambda a, b: f"{numbers.plain(a)} preemptions a run, against {numbers.plain(b)}"),
    Clue(m.GPU_HOURS, lambda a, b: f"it used {numbers.plain(a)} GPU-hours, against {numbers.plain(b)}"),
)


def explain(comparison: Comparison) -> list[str]:
    """Two to four sentences; the first names the winner and how sure that is."""
    subject, verdict = _verdict(comparison)
    if subject is None:
        return [verdict]
    sentences = [verdict, *_rivals(comparison)]
    told = len(sentences)
    helps, hurts = _clues(comparison, subject)
    if helps:
        sentences.append(f"Along with {subject}: {_listed(helps)}.")
    if hurts:
        sentences.append(f"On the other side: {_listed(hurts)}.")
    worse = _worse_groups(comparison, subject)
    if worse:
        sentences.append(f"Not every group gained from {subject}: {_listed(worse)}.")
    if len(sentences) == told:
        sentences.append("No other figure differs by more than the runs vary, so the runs do not show a cause.")
    return sentences


def _verdict(comparison: Comparison) -> tuple[str | None, str]:
    """The arm that the explanation is about (never the reference) and the first sentence."""
    ranked = comparison.ranked()
    best, reference = ranked[0], comparison.reference
    rate = numbers.plain(best.estimate(m.GOODPUT).mean)
    if len(ranked) == 1:
        attained = numbers.share(best.estimate(m.ATTAINMENT_OFFERED).mean)
        return None, (
            f"{best.arm.name} gave {rate} tokens/s of Goodput;"
            f" {attained} of the offered requests met their targets."
        )
    if best.arm.name == reference:
        other = ranked[1].arm.name
        change = numbers.relative_with_interval(comparison.relative_difference(other))
        return (
            other,
            f"No policy beat the reference {reference} ({rate} tokens/s); the nearest, {other}, gave {change}.",
        )
    name = best.arm.name
    figure = comparison.relative_difference(name)
    head = f"{name} gave the most Goodput: {rate} tokens/s, {_more(figure.mean)} than {reference}"
    if figure.low is None or figure.high is None:
        return name, f"{head}. With this few seeds the runs cannot say how sure that is."
    low, high = numbers.signed_share(figure.low), numbers.signed_share(figure.high)
    head = f"{head} (95 % interval {low} to {high}, {figure.count} seeds)"
    if not figure.excludes_zero:
        return name, f"{head}. The interval includes zero, so the runs do not separate the two."
    return name, f"{head}."


def _rivals(comparison: Comparison) -> list[str]:
    """Names arms whose paired difference to the best one includes zero (the reference is the verdict's)."""
    best = comparison.best()
    close = []
    for entry in comparison.ranked()[1:]:
        change = paired_relative_difference(entry.values(m.GOODPUT), best.values(m.GOODPUT))
        close_by = change.half_width is not None and not change.excludes_zero
        if close_by and entry.arm.name != comparison.reference:
            close.append(f"{entry.arm.name}: {numbers.relative_with_interval(change)}")
    return [f"Not told apart from {best.arm.name} by these runs: {_listed(close)}."] if close else []


def _more(relative: float) -> str:
    """0.12 as ``12.0 % more``; below zero ``less``, though the best arm by its mean is seldom that."""
    return f"{numbers.share(abs(relative))} {'more' if relative >= 0 else 'less'}"


def _clues(comparison: Comparison, subject: str) -> tuple[list[str], list[str]]:
    """Sentences about figures that moved the good way and the bad way between the subject and the reference."""
    ours, base = comparison.arm(subject), comparison.arm(comparison.reference)
    helps: list[str] = []
    hurts: list[str] = []
    for clue in CLUES:
        if not _differs(comparison, subject, clue.measure):
            continue
        a, b = ours.estimate(clue.measure).mean, base.estimate(clue.measure).mean
        better = a > b if clue.measure.better == "higher" else a < b
        (helps if better else hurts).append(clue.say(a, b))
    return helps, hurts


def _differs(comparison: Comparison, subject: str, measure: Measure) -> bool:
    change = comparison.difference(subject, measure)
    base = comparison.arm(comparison.reference).estimate(measure).mean
    if not math.isfinite(change.mean) or change.mean == 0:
        return False
    relative = abs(change.mean / base) if base else math.inf
    if change.half_width is None:
        return relative >= LARGE
    return change.excludes_zero and relative >= NOTABLE


def _worse_groups(comparison: Comparison, subject: str) -> list[str]:
    """Classes and tenants whose share of met requests fell by more than one percentage point."""
    ours, base = comparison.arm(subject), comparison.arm(comparison.reference)
    lines = []
    for kind in m.GROUP_KINDS:
        for name in comparison.group_names(kind):
            a, b = _offered(ours, kind, name), _offered(base, kind, name)
            if a < b - 0.01:
                lines.append(f"{kind} {name} met its targets for {numbers.share(a)}, against {numbers.share(b)}")
    return lines


def _offered(entry: ArmRuns, kind: m.GroupKind, name: str) -> float:
    return group_estimate(entry, kind, name, lambda group: group.attainment_offered).mean


def _listed(parts: list[str]) -> str:
    return "; ".join(parts)
