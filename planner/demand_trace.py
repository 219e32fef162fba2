"""Demand from a trace window: output tokens/s of each commodity in equal bins, quantiles over the bins."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from data.errors import InputError, SettingError
from data.fleet.types import Fleet
from data.types import TraceBatch
from planner.demand import LEVELS, CommodityKey, DemandRow, DemandTable, demand_table


@dataclass(frozen=True, slots=True)
class TraceWindow:
    """Which part of a trace to count, and what to take where it leaves a name blank.

    Attributes:
        start_s, end_s: Arrivals within [start, end) count; ``end_s`` ``None`` = to the last arrival.
        bin_s: Width of one bin (> 0); quantiles are over bins.
        model, workload_class, tenant, origin: Names for requests without one; "" = the fleet's only one.
        scale: Factor on every rate (> 0), for what-if questions.
    """

    start_s: float = 0.0
    end_s: float | None = None
    bin_s: float = 60.0
    model: str = ""
    workload_class: str = ""
    tenant: str = ""
    origin: str = ""
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not self.bin_s > 0:
            raise SettingError("setting out of range", field="bin_s", value=self.bin_s, expected="seconds above 0")
        if not self.scale > 0:
            raise SettingError("setting out of range", field="scale", value=self.scale, expected="above 0")
        if self.end_s is not None and not self.end_s > self.start_s:
            raise SettingError(
                "window is empty", field="end_s", value=self.end_s, expected=f"above {self.start_s:g}"
            )


def demand_from_trace(batches: Iterable[TraceBatch], fleet: Fleet, window: TraceWindow) -> DemandTable:
    """Demand of a trace window.

    Requests whose names the fleet does not know are left out, counted and named in the notes. A commodity with no
    request in a bin has a rate of 0 there: that is traffic of zero, not missing data.

    Raises:
        InputError: No request falls into the window, or a blank name has no default.
    """
    defaults = _defaults(fleet, window)
    sums: dict[CommodityKey, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    lengths: dict[CommodityKey, list[float]] = defaultdict(lambda: [0.0] * 4)
    unknown: Counter[str] = Counter()
    last_s = window.start_s
    for batch in batches:
        inside = batch.arrival_s >= window.start_s
        if window.end_s is not None:
            inside &= batch.arrival_s < window.end_s
        columns = [_column(getattr(batch, name), len(batch)) for name in defaults]
        for i in np.flatnonzero(inside).tolist():
            names = [
                column[i] or default(name)
                for column, (name, default) in zip(columns, defaults.items(), strict=True)
            ]
            key: CommodityKey = (names[0], names[1], names[2], names[3])
            problem = unknown_name(key, fleet)
            if problem:
                unknown[problem] += 1
                continue
            at = float(batch.arrival_s[i])
            last_s = max(last_s, at)
            output = float(batch.output_tokens[i])
            sums[key][int((at - window.start_s) // window.bin_s)] += output
            counted = lengths[key]
            prompt = float(batch.input_tokens[i])
            counted[0] += 1
            counted[1] += prompt
            counted[2] += output
            counted[3] += prompt * prompt
    if not sums:
        why = "; ".join(f"{count} {what}" for what, count in sorted(unknown.items())) or "no request in the window"
        raise InputError(f"no demand found: {why}", expected="requests of the fleet's models, classes and tenants")
    end_s = window.end_s if window.end_s is not None else last_s
    rows = [_row(key, bins, lengths[key], end_s - window.start_s, window) for key, bins in sums.items()]
    notes = [f"{count} requests left out: {what}" for what, count in sorted(unknown.items())]
    return demand_table(rows, (), notes)


class _Default:
    """The name for a blank: the window's own, else the fleet's only one, else an error."""

    def __init__(self, given: str, known: Sequence[str]) -> None:
        self._name = given or (known[0] if len(known) == 1 else "")
        self._known = known

    def __call__(self, field: str) -> str:
        if not self._name:
            raise InputError(
                f"the trace leaves {field} blank and the fleet has several",
                field=field,
                expected="a default: one of " + ", ".join(self._known),
            )
        return self._name


def _defaults(fleet: Fleet, window: TraceWindow) -> dict[str, _Default]:
    entries = [site.name for site in fleet.sites if site.role == "entry"]
    return {
        "model": _Default(window.model, [model.key for model in fleet.models]),
        "workload_class": _Default(window.workload_class, [kind.name for kind in fleet.classes]),
        "tenant": _Default(window.tenant, [tenant.name for tenant in fleet.tenants]),
        "origin": _Default(window.origin, entries or [site.name for site in fleet.sites]),
    }


def _column(names: Sequence[str], count: int) -> Sequence[str]:
    return names if len(names) else ("",) * count


def unknown_name(key: CommodityKey, fleet: Fleet) -> str:
    """What of a commodity the fleet does not know, in words; "" = it knows all its names."""
    model, kind, tenant, origin = key
    for what, name, known in (
        ("model", model, [m.key for m in fleet.models]),
        ("class", kind, [c.name for c in fleet.classes]),
        ("tenant", tenant, [t.name for t in fleet.tenants]),
        ("origin", origin, [s.name for s in fleet.sites]),
    ):
        if name not in known:
            return f"unknown {what} {name!r}"
    return ""


def _row(
    key: CommodityKey, bins: dict[int, float], lengths: list[float], span_s: float, window: TraceWindow
) -> DemandRow:
    count = max(int(np.ceil(span_s / window.bin_s - 1e-9)), 1)
    rates = np.zeros(count)
    for index, tokens in bins.items():
        # The last bin may be cut short by the end of the trace; its rate is over the time it covers.
        place = min(index, count - 1)
        covered = min(window.bin_s, max(span_s - place * window.bin_s, min(window.bin_s, 1.0)))
        rates[place] += tokens / covered
    values = np.quantile(rates * window.scale, LEVELS)
    requests, prompt, output, squares = lengths
    mean = prompt / requests
    variation = float(np.sqrt(max(squares / requests - mean * mean, 0.0))) / mean
    return DemandRow(*key, tuple(float(v) for v in values), mean, output / requests, variation)
