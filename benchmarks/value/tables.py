"""The contest's tables and rows: the headline against the baseline, and every arm beside baseline and whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.value.runs import SEEDS, Book
from benchmarks.value.scene import Scene
from benchmarks.value.variants import (
    ADDED,
    BASE,
    FLEETMIND,
    FLOW_ADDED,
    PILOT_LOCAL,
    SPREAD,
    UNLIMITED,
    WHOLE,
    WITHOUT_FLOW,
    Variant,
)
from planner.intervals import Estimate
from planner.measures import (
    ATTAINMENT_OFFERED,
    BREACHES,
    GOODPUT,
    GPU_HOURS,
    OUTPUT_RATE,
    REJECTED,
    TTFT_P50,
    TTFT_P95,
    Measure,
)
from planner.report.table import Row, Table

HEADLINE: tuple[tuple[Measure, float], ...] = (
    (TTFT_P50, -0.713),
    (TTFT_P95, -0.324),
    (OUTPUT_RATE, -0.005),
    (GOODPUT, 0.294),
    (ATTAINMENT_OFFERED, 0.19),
)
"""Measure and the change that is aimed at: at most for times, at least for all else. Output must not fall; half a
per cent is the noise of what is still unfinished when the run ends."""
FLEETMIND_LEAD = 0.15
ARM_COLUMNS = (
    "Arm", "Goodput", "Against the baseline", "Against the whole", "Attained, offered", "Output", "TTFT P50",
    "TTFT P95", "Turned away",
)  # fmt: skip

PLANNING_COLUMNS = (
    "Arm", "Goodput", "Against FleetMind", "Attained, offered", "Output", "TTFT P50", "TTFT P95", "GPU-hours",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Contest:
    """What was run at one load.

    Attributes:
        level: Attainment of least request over all sites that sets the load; in ids and titles.
        scene: The load.
        variants: All arms, baseline and whole among them.
        planning: Arms that are set beside TokenPilot and FleetMind without a flow control.
        seeds: Seeds of the runs.
    """

    level: str
    scene: Scene
    variants: tuple[Variant, ...]
    planning: tuple[Variant, ...] = ()
    seeds: Sequence[int] = SEEDS

    @property
    def title(self) -> str:
        """For a table."""
        return f"{self.scene.rate_per_s:.1f} requests/s, least request over all sites at {self.level}"


def headline_table(contest: Contest, book: Book) -> Table:
    """The five figures without TokenFleet and with it."""
    rows = []
    for measure, aim in HEADLINE:
        means = [_shown(book.mean(contest.scene, v, measure.key, contest.seeds), measure) for v in (BASE, WHOLE)]
        change = book.change(contest.scene, WHOLE, BASE, measure, contest.seeds)
        words = "points" if measure.unit == "share" else "%"
        target = "not lower" if measure is OUTPUT_RATE else f"{100 * aim:+.1f} {words}"
        cells = (
            measure.label,
            *means,
            changed(change, measure),
            target,
            "yes" if met(change, measure, aim) else "no",
        )
        rows.append(Row(cells))
    columns = ("Figure", BASE.id, "TokenFleet", "Change (95 % interval)", "Target", "Met")
    return Table(contest.title, columns, tuple(rows))


def arms_table(contest: Contest, book: Book) -> Table:
    """Every arm; losing ones stay."""
    return Table(contest.title, ARM_COLUMNS, tuple(_arm_row(contest, book, one) for one in contest.variants))


def _arm_row(contest: Contest, book: Book, variant: Variant) -> Row:
    scene, seeds = contest.scene, contest.seeds
    means = {
        measure.key: _shown(book.mean(scene, variant, measure.key, seeds), measure)
        for measure in (GOODPUT, ATTAINMENT_OFFERED, OUTPUT_RATE, TTFT_P50, TTFT_P95, REJECTED)
    }
    against = [
        "" if variant == over else changed(book.change(scene, variant, over, GOODPUT, seeds), GOODPUT)
        for over in (BASE, WHOLE)
    ]
    rest = [means[m.key] for m in (ATTAINMENT_OFFERED, OUTPUT_RATE, TTFT_P50, TTFT_P95, REJECTED)]
    return Row((variant.id, means[GOODPUT.key], *against, *rest), "best" if variant == WHOLE else "")


def planning_table(contest: Contest, book: Book) -> Table:
    """Placements and site rules under TokenPilot without a flow control, against FleetMind's."""
    scene, seeds = contest.scene, contest.seeds
    rows = []
    for variant in (WITHOUT_FLOW, *contest.planning):
        own = variant == WITHOUT_FLOW
        change = "" if own else changed(book.change(scene, variant, WITHOUT_FLOW, GOODPUT, seeds), GOODPUT)
        rest = (ATTAINMENT_OFFERED, OUTPUT_RATE, TTFT_P50, TTFT_P95)
        cells = [_shown(book.mean(scene, variant, one.key, seeds), one) for one in (GOODPUT, *rest)]
        hours = f"{book.mean(scene, variant, GPU_HOURS.key, seeds).mean:.2f}"
        rows.append(Row((variant.id, cells[0], change, *cells[1:], hours), "best" if own else ""))
    return Table(contest.title, PLANNING_COLUMNS, tuple(rows))


def group_table(
    contest: Contest, book: Book, kind: str, names: Sequence[str], variants: Sequence[Variant]
) -> Table:
    """Attainment of each class or tenant under some arms."""
    rows = [
        Row((
            variant.id,
            *(
                f"{book.mean(contest.scene, variant, f'attained/{kind}/{name}', contest.seeds).mean:.1%}"
                for name in names
            ),
        ))
        for variant in variants
    ]  # fmt: skip
    return Table(f"Attained by {kind}, {contest.title}", ("Arm", *names), tuple(rows))


def rows_of(contest: Contest, book: Book) -> list[dict[str, Any]]:
    """Rows of the results file."""
    scene, seeds, level = contest.scene, contest.seeds, contest.level
    against = (
        f"{BASE.text}, as it stands, {scene.rate_per_s:.3g} requests/s, least request over all sites at {level}"
    )
    found = []
    for measure, aim in HEADLINE:
        change = book.change(scene, WHOLE, BASE, measure, seeds)
        target = f"{'<=' if measure.better == 'lower' else '>='} {aim:+.1%}"
        found.append(_row(f"value/{level}/{measure.key}", change, against, target, met(change, measure, aim)))
    pairs = (("fleetmind", FLEETMIND, BASE), ("fleetmind_with_tokenpilot", WITHOUT_FLOW, PILOT_LOCAL))
    for name, own, other in pairs:
        if own in contest.variants and other in contest.variants:
            change = book.change(scene, own, other, GOODPUT, seeds)
            ahead = met(change, GOODPUT, FLEETMIND_LEAD) and change.mean > 0 and change.excludes_zero
            where = f"{other.text}, as it stands, {scene.rate_per_s:.3g} requests/s"
            target = f">= {FLEETMIND_LEAD:+.0%}, interval > 0"
            found.append(_row(f"value/{level}/{name}", change, where, target, ahead))
    known = {BASE, WHOLE, FLEETMIND}
    for variant in contest.variants:
        if variant not in known:
            over = BASE if variant in (SPREAD, FLOW_ADDED, *ADDED) else WHOLE
            change = book.change(scene, variant, over, GOODPUT, seeds)
            found.append(_row(f"value/{level}/{_slug(variant.id)}", change, over.id, None, None))
    for variant in contest.planning:
        change = book.change(scene, variant, WITHOUT_FLOW, GOODPUT, seeds)
        found.append(_row(f"value/{level}/planning/{_slug(variant.id)}", change, WITHOUT_FLOW.id, None, None))
    return [*found, *_rules(contest, book)]


def _rules(contest: Contest, book: Book) -> list[dict[str, Any]]:
    """Residency, and how often an engine of the whole had more in flight than its load ceiling allows."""
    breaches = [
        v for one in contest.variants for v in book.values(contest.scene, one, BREACHES.key, contest.seeds)
    ]
    runs = f"{len(breaches)} runs of all arms"
    total = {**_plain(f"value/{contest.level}/breaches", sum(breaches), "requests", runs), "target": "0"}
    found = [{**total, "met": sum(breaches) == 0}]
    for variant in (WHOLE, UNLIMITED):
        if variant in contest.variants:
            over = book.mean(contest.scene, variant, "over_ceiling", contest.seeds).mean
            id_ = f"value/{contest.level}/over_ceiling/{_slug(variant.id)}"
            looks = _plain(id_, over, "share of looks", "each engine once a second")
            found.append({**looks, "target": "0", "met": over == 0})
    return found


def met(change: Estimate, measure: Measure, aim: float) -> bool:
    """Whether the mean reaches what is aimed at."""
    return change.mean <= aim if measure.better == "lower" else change.mean >= aim


def changed(change: Estimate, measure: Measure) -> str:
    """A change with its interval, in points or per cent."""
    unit = "points" if measure.unit == "share" else "%"
    text = f"{100 * change.mean:+.1f}"
    if change.low is not None and change.high is not None:
        text += f" ({100 * change.low:+.1f} to {100 * change.high:+.1f})"
    return f"{text} {unit}"


def _shown(value: Estimate, measure: Measure) -> str:
    if measure.unit == "share":
        return f"{value.mean:.1%}"
    return f"{value.mean:.3g} s" if measure.unit == "s" else f"{value.mean:,.0f}"


def _slug(name: str) -> str:
    return "_".join("".join(c if c.isalnum() else " " for c in name).split())


def _row(id_: str, change: Estimate, reference: str, target: str | None, is_met: bool | None) -> dict[str, Any]:
    return {
        **_plain(id_, change.mean, "relative or points", reference),
        "ratio": 1.0 + change.mean,
        "seeds": change.count,
        "interval": [change.low, change.high],
        "target": target,
        "met": is_met,
    }


def _plain(id_: str, value: float, unit: str, reference: str) -> dict[str, Any]:
    return {
        "id": id_, "area": "value", "value": value, "unit": unit, "reference": reference, "ratio": None,
        "target": None, "met": None,
    }  # fmt: skip
