"""The tables of a comparison. Every arm stands in every table; an arm that loses is never left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner import measures as m
from planner.compare import ArmRuns, Comparison, group_estimate
from planner.intervals import MIN_SEEDS
from planner.measures import GroupKind, Measure
from planner.report import numbers
from planner.report.table import Mark, Row, Table
from planner.sim.result import GroupResult

OUTPUT_ONLY = (
    "Goodput and output count output tokens only. Figures of other tools often count input and output tokens"
    " together and cannot be set beside these."
)

HEAD_UNITS = {"tokens/s": "tokens/s", "GPU-h": "", "tokens/GPU-h": "tokens", "count": "", "s": "", "share": ""}


def comparison_tables(comparison: Comparison) -> list[Table]:
    """All tables in reading order: headline, latency, losses, waste and cost, then by class, tenant and tier."""
    tables = [
        headline_table(comparison),
        measure_table(comparison, "Latency of completed requests", LATENCY),
        measure_table(comparison, "What went wrong (mean count a run)", LOSSES, LOSSES_NOTE),
        measure_table(
            comparison, "Tokens computed for nothing (mean a run)", tuple(m.WASTED.values()), WASTE_NOTE
        ),
        measure_table(comparison, "Reuse and cost", COST),
    ]
    tables += [group_table(comparison, "class"), group_table(comparison, "tenant")]
    if len(comparison.group_names("tier")) > 1:
        tables.append(group_table(comparison, "tier"))
    return [table for table in tables if table.rows and len(table.columns) > 1]


LATENCY = (m.TTFT_P50, m.TTFT_P95, m.TTFT_P99, m.TPOT_P50, m.TPOT_P95, m.TPOT_P99)
KEY = (m.ATTAINMENT_OFFERED, m.TTFT_P95, m.TPOT_P95, m.HIT_RATE)
LOSSES = (m.FAILED, m.CANCELLED, m.REJECTED, m.REPEATS, m.RUNNING, m.PREEMPTIONS, m.BREACHES)
LOSSES_NOTE = (
    "Repeats: attempts after the first. Unfinished: still running when the run ended."
    " Breaches: requests served outside the residency zones of their tenant."
)
WASTE_NOTE = (
    "Uncached prompt tokens and output tokens. Late: of requests that completed outside their targets. Repeated:"
    " of failed attempts that were tried again. Preempted: computed twice."
)
COST = (m.HIT_RATE, m.GPU_HOURS, m.GOODPUT_PER_GPU_HOUR)


def headline_table(comparison: Comparison) -> Table:
    """Goodput, its difference to the reference, total output and both attainments; best first."""
    several = len(comparison.arms) > 1
    against = (f"Against {comparison.reference}",) if several else ()
    columns = (
        "Policy",
        "Goodput (tokens/s)",
        *against,
        "Output (tokens/s)",
        "Attained, finished",
        "Attained, offered",
    )
    rows = []
    for entry in comparison.ranked():
        name = entry.arm.name
        change = numbers.relative_with_interval(comparison.relative_difference(name))
        cells = (
            name,
            numbers.with_interval(entry.estimate(m.GOODPUT), "tokens/s"),
            *(("reference" if name == comparison.reference else change,) if several else ()),
            numbers.plain(entry.estimate(m.OUTPUT_RATE).mean),
            numbers.share(entry.estimate(m.ATTAINMENT_FINISHED).mean),
            numbers.share(entry.estimate(m.ATTAINMENT_OFFERED).mean),
        )
        rows.append(Row(cells, _mark(comparison, entry)))
    return Table("Goodput by policy", columns, tuple(rows), f"{interval_note(comparison)} {OUTPUT_ONLY}")


def measure_table(comparison: Comparison, title: str, chosen: Sequence[Measure], note: str = "") -> Table:
    """Means over seeds of the chosen figures, one row an arm, best Goodput first."""
    columns = ("Policy", *(_head(measure) for measure in chosen))
    rows = tuple(
        Row(
            (
                entry.arm.name,
                *(numbers.number(entry.estimate(measure).mean, measure.unit) for measure in chosen),
            ),
            _mark(comparison, entry),
        )
        for entry in comparison.ranked()
    )
    return Table(title, columns, rows, note)


def full_table(comparison: Comparison) -> Table:
    """Every figure with its interval, one row a figure and one column an arm."""
    ranked = comparison.ranked()
    columns = ("Figure", "Unit", *(entry.arm.name for entry in ranked))
    rows = tuple(
        Row(
            (
                measure.label,
                measure.unit,
                *(numbers.with_interval(entry.estimate(measure), measure.unit) for entry in ranked),
            )
        )
        for measure in m.MEASURES
    )
    return Table("Every figure", columns, rows, f"{interval_note(comparison)} {OUTPUT_ONLY}", left=2)


def difference_table(comparison: Comparison) -> Table:
    """Each arm minus the reference, seed by seed, for every figure."""
    others = [entry for entry in comparison.ranked() if entry.arm.name != comparison.reference]
    columns = ("Figure", *(entry.arm.name for entry in others))
    rows = tuple(
        Row(
            (
                measure.label,
                *(
                    numbers.difference_with_interval(comparison.difference(entry.arm.name, measure), measure.unit)
                    for entry in others
                ),
            )
        )
        for measure in m.MEASURES
    )
    return Table(f"Paired difference to {comparison.reference}", columns, rows, interval_note(comparison))


def difference_summary(comparison: Comparison) -> Table:
    """The differences that matter most, one row an arm, narrow enough for a terminal."""
    others = [entry for entry in comparison.ranked() if entry.arm.name != comparison.reference]
    rows = tuple(
        Row(
            (
                entry.arm.name,
                *(
                    numbers.difference_with_interval(comparison.difference(entry.arm.name, one), one.unit)
                    for one in KEY
                ),
            )
        )
        for entry in others
    )
    title = f"Paired difference to {comparison.reference}"
    return Table(title, ("Policy", *(one.label for one in KEY)), rows)


def group_table(comparison: Comparison, kind: GroupKind) -> Table:
    """Goodput and attainment (of offered requests) by class, tenant or tier; best total Goodput first."""
    names = comparison.group_names(kind)
    rows = []
    for entry in comparison.ranked():
        cells = [
            f"{_group_mean(entry, kind, name, _goodput, numbers.plain)}"
            f" ({_group_mean(entry, kind, name, _offered, numbers.share)})"
            for name in names
        ]
        rows.append(Row((entry.arm.name, *cells), _mark(comparison, entry)))
    title = f"By {kind}: Goodput in tokens/s (share of offered requests that met their targets)"
    return Table(title, ("Policy", *(name or "(none)" for name in names)), tuple(rows))


def interval_note(comparison: Comparison) -> str:
    """What the intervals mean, or why there are none."""
    count = len(comparison.seeds)
    if comparison.has_intervals:
        return (
            f"± and brackets: 95 % intervals (Student's t) over {count} seeds;"
            " differences are taken seed by seed on the same arrivals, lengths, noise and failures."
        )
    runs = "1 seed" if count == 1 else f"{count} seeds"
    return f"No interval: {runs}, and intervals need at least {MIN_SEEDS}."


def _head(measure: Measure) -> str:
    unit = HEAD_UNITS[measure.unit]
    return f"{measure.label} ({unit})" if unit else measure.label


def _mark(comparison: Comparison, entry: ArmRuns) -> Mark:
    if len(comparison.arms) == 1:
        return ""
    if entry.arm.name == comparison.best().arm.name:
        return "best"
    return "reference" if entry.arm.name == comparison.reference else ""


def _goodput(group: GroupResult) -> float:
    return group.goodput_tokens_per_s


def _offered(group: GroupResult) -> float:
    return group.attainment_offered


def _group_mean(
    entry: ArmRuns,
    kind: GroupKind,
    name: str,
    take: Callable[[GroupResult], float],
    write: Callable[[float], str],
) -> str:
    return write(group_estimate(entry, kind, name, take).mean)
