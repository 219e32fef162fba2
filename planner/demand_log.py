"""Demand from the decision and outcome log: what was offered, by model, class, tenant, origin and window.

*Offered, not served.* Each request counts once, at its first decision: a repeat of it is no new demand, and one
that was refused, given up or lost is demand all the same. How long its answer would have been nobody knows: it
counts the mean of the commodity's completed requests, at least what was generated and at most its budget. Requests
that were wrong themselves (client errors) are no demand.

*Known, zero, missing.* Every row of the log, of whatever commodity, shows that the log was being written. A
silence of all of them is a gap of the collection if at the rate before it so long a silence cannot be chance
(``surprise`` rows were due), the log had been written for ``least_active`` commodities, and it is not longer than
``longest_s``; the windows that it touches are unknown. So are hours whose files cannot be read. A commodity that
is silent while others are logged has a demand of zero. The first and the last window are left out where the log
does not cover them.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from data.errors import InputError, SettingError
from data.log.partitions import HOUR_S, parse_partition_name
from data.log.reader import LogReader
from data.types import FloatArray, Status
from models.base import BoolArray
from models.demand.outages import OutageSettings
from planner.demand import CommodityKey
from planner.demand_history import MAX_CELLS, Naming, RecordedDemand, check_names, outage_note

READ_S = 3600.0
"""The log is read in windows of about this length; one is in memory at a time."""
EDGE = 0.05
"""A first or last window is whole if the log leaves at most this share of it uncovered."""


@dataclass(frozen=True, slots=True)
class LogDemandSettings:
    """How a log is counted.

    Attributes:
        step_s: Length of a window (above 0).
        since_s, until_s: Windows within [since, until) on the log's clock; ``None`` = from its first row, to its
            last. With ``until_s`` later than the last row the silence between them is judged like any other.
        surprise: Rows that were due in a silence, at least, for it to be a gap (1 to 1e6).
        outages: When a silence is believed instead: ``least_active`` and ``longest_s`` of them.
    """

    step_s: float = 600.0
    since_s: float | None = None
    until_s: float | None = None
    surprise: float = 30.0
    outages: OutageSettings = field(default_factory=OutageSettings)

    def __post_init__(self) -> None:
        if not 0 < self.step_s < 1e9:
            raise SettingError("out of range", field="step_s", value=self.step_s, expected="seconds above 0")
        if not 1 <= self.surprise <= 1e6:
            raise SettingError("out of range", field="surprise", value=self.surprise, expected="1 to 1,000,000")
        if self.since_s is not None and self.until_s is not None and not self.since_s < self.until_s:
            raise SettingError("window is empty", field="until_s", value=self.until_s, expected="after since_s")


SUMS = ("requests", "prompts", "squares", "completed", "outputs", "incomplete", "generated", "budgets")
"""What is added up for each commodity and window: requests, their prompt tokens and the squares of these;
completed ones and their output tokens; the others, what was generated for them and what they were allowed."""


@dataclass(slots=True)
class _Seen:
    """What the whole log has told so far; it grows with commodities and windows, not with requests."""

    step_s: float
    cells: dict[tuple[CommodityKey, int], FloatArray] = field(default_factory=dict)
    rows: Counter[int] = field(default_factory=Counter)
    silences: list[tuple[float, float]] = field(default_factory=list)
    first_s: float = math.inf
    last_s: float = -math.inf
    repeats: int = 0
    client_errors: int = 0

    def row_times(self, times_s: FloatArray) -> None:
        """Rows of the log were written at these times, none before what was seen already by much."""
        known = np.sort(times_s[np.isfinite(times_s)])
        if not len(known):
            return
        windows, counts = np.unique(np.floor(known / self.step_s).astype(np.int64), return_counts=True)
        self.rows.update(dict(zip(windows.tolist(), counts.tolist(), strict=True)))
        chain = known if not math.isfinite(self.last_s) else np.concatenate([[self.last_s], known])
        chain = np.maximum.accumulate(chain)
        for place in np.flatnonzero(np.diff(chain) >= EDGE * self.step_s).tolist():
            self.silences.append((float(chain[place]), float(chain[place + 1])))
        self.first_s = min(self.first_s, float(known[0]))
        self.last_s = max(self.last_s, float(known[-1]))

    def add(self, key: CommodityKey, window: int, sums: FloatArray) -> None:
        """More requests of a commodity in a window."""
        found = self.cells.get((key, window))
        self.cells[key, window] = sums if found is None else found + sums


def history_from_log(
    reader: LogReader, naming: Naming, settings: LogDemandSettings | None = None
) -> RecordedDemand:
    """Rates of offered requests and output tokens of a log, one window of it in memory at a time.

    ``naming`` gives the names that a row lacks; a row of an older log has no origin.

    Raises:
        LogError: As ``LogReader.window``.
        InputError: No whole window, a name that is missing, or more than 50 million cells.
    """
    chosen = settings or LogDemandSettings()
    seen = _Seen(chosen.step_s)
    for table in reader.iter_windows(max(READ_S, chosen.step_s)):
        _count(table, naming, chosen, seen)
    first, windows = _range(seen, chosen)
    keys = tuple(sorted({key for key, window in seen.cells if first <= window < first + windows}))
    check_names(keys)
    if len(keys) * windows > MAX_CELLS:
        raise InputError("too many windows", field="step_s", value=chosen.step_s, expected="a longer window")
    place = {key: row for row, key in enumerate(keys)}
    sums = np.zeros((len(SUMS), len(keys), windows))
    for (key, window), cell in seen.cells.items():
        if first <= window < first + windows:
            sums[:, place[key], window - first] = cell
    unknown = _silent(seen, chosen, first, windows, (sums[0] > 0).sum(axis=0)) | _unreadable(
        reader, chosen.step_s, first, windows
    )
    return _recorded(
        keys, sums, unknown, naming.scale, chosen.step_s, (first + windows) * chosen.step_s, seen, reader
    )


def _count(table: pa.Table, naming: Naming, settings: LogDemandSettings, seen: _Seen) -> None:
    """One window of the log: every row shows that the log was written, first decisions are requests."""
    since_s = -math.inf if settings.since_s is None else settings.since_s
    until_s = math.inf if settings.until_s is None else settings.until_s
    at, finished = _numbers(table, "decided_s"), _numbers(table, "finished_s")
    times = np.concatenate([at, finished[finished <= at.max(initial=-math.inf)]])
    seen.row_times(times[(times >= since_s) & (times < until_s)])
    inside = (at >= since_s) & (at < until_s)
    status = _numbers(table, "status")
    repeat, wrong = _numbers(table, "attempt") > 0, status == Status.CLIENT_ERROR
    seen.repeats += int((inside & repeat).sum())
    seen.client_errors += int((inside & ~repeat & wrong).sum())
    rows = np.flatnonzero(inside & ~repeat & ~wrong)
    if not len(rows):
        return
    prompts, outputs = _numbers(table, "input_tokens", 0.0), _numbers(table, "output_tokens", 0.0)
    budgets = _numbers(table, "output_budget", math.inf)
    done = status == Status.COMPLETED
    values = np.stack([
        np.ones(len(at)), prompts, prompts**2, done, np.where(done, outputs, 0.0), ~done,
        np.where(done, 0.0, outputs), np.where(done, 0.0, np.where(np.isfinite(budgets), budgets, 1e9)),
    ])  # fmt: skip
    names = [_names(table, name) for name in ("model", "workload_class", "tenant", "origin")]
    codes = np.stack([np.floor(at / settings.step_s), *(codes for codes, _ in names)], axis=1)[rows].astype(
        np.int64
    )
    groups, member = np.unique(codes, axis=0, return_inverse=True)
    totals = np.zeros((len(SUMS), len(groups)))
    np.add.at(totals.T, member.ravel(), values.T[rows])
    for group, (window, *place) in enumerate(groups.tolist()):
        model, kind, tenant, origin = (texts[code] for code, (_, texts) in zip(place, names, strict=True))
        seen.add(naming.key(model, kind, tenant, origin), window, totals[:, group])


def _numbers(table: pa.Table, name: str, empty: float = math.nan) -> FloatArray:
    values = table.column(name).to_numpy(zero_copy_only=False).astype(np.float64)
    return np.asarray(np.where(np.isnan(values), empty, values))


def _names(table: pa.Table, name: str) -> tuple[FloatArray, list[str]]:
    """Codes of a column of names, and the names; a null is the empty name."""
    found = table.column(name).cast(pa.string()).fill_null("").combine_chunks().dictionary_encode()
    if isinstance(found, pa.ChunkedArray):
        found = found.unify_dictionaries().combine_chunks()
    return found.indices.to_numpy(zero_copy_only=False), found.dictionary.to_pylist()


def _range(seen: _Seen, settings: LogDemandSettings) -> tuple[int, int]:
    """First window that is covered whole, and how many there are."""
    step_s = settings.step_s
    if not math.isfinite(seen.first_s):
        raise InputError("no row of the log lies in the window", field="since_s", value=settings.since_s)
    begin = seen.first_s if settings.since_s is None else settings.since_s
    end = seen.last_s if settings.until_s is None else settings.until_s
    first, last = math.ceil(begin / step_s - EDGE), math.floor(end / step_s + EDGE)
    if last <= first:
        raise InputError("the log is shorter than one window", field="step_s", value=step_s, expected="less")
    if last - first > MAX_CELLS:
        raise InputError("too many windows", field="step_s", value=step_s, expected="a longer window")
    return first, last - first


def _silent(seen: _Seen, settings: LogDemandSettings, first: int, windows: int, active: FloatArray) -> BoolArray:
    """Windows that a gap of the collection touches."""
    found = np.zeros(windows, dtype=np.bool_)
    step_s, rules = settings.step_s, settings.outages
    end_s = (first + windows) * step_s
    silences = [*seen.silences, (seen.last_s, end_s)] if seen.last_s < end_s else seen.silences
    for start_s, stop_s in sorted(silences):
        at = math.floor(start_s / step_s) - first
        # The rate before it: of the last whole window that no gap has touched.
        before = next(
            (w for w in range(min(at, windows) - 1, -1, -1) if not found[w] and seen.rows[w + first]), -1
        )
        if before < 0 or active[before] < rules.least_active:
            continue
        due = seen.rows[before + first] / step_s * (stop_s - start_s)
        if due < settings.surprise:
            continue
        stop_s = min(stop_s, start_s + rules.longest_s)
        # A window that a gap cuts by less than what an edge may lack is still whole.
        begin, end = math.floor(start_s / step_s + EDGE) - first, math.ceil(stop_s / step_s - EDGE) - first
        found[max(begin, 0) : max(end, 0)] = True
    return found


def _unreadable(reader: LogReader, step_s: float, first: int, windows: int) -> BoolArray:
    """Windows of the hours in which a file of decisions cannot be read."""
    found = np.zeros(windows, dtype=np.bool_)
    for name in reader.report.skipped:
        hour = parse_partition_name(Path(name).parent.name)
        if hour is not None and Path(name).parent.parent.name == "decisions":
            start = math.floor(hour * HOUR_S / step_s) - first
            stop = math.ceil((hour + 1) * HOUR_S / step_s) - first
            found[max(start, 0) : max(stop, 0)] = True
    return found


def _recorded(
    keys: tuple[CommodityKey, ...],
    sums: FloatArray,
    unknown: BoolArray,
    scale: float,
    step_s: float,
    now_s: float,
    seen: _Seen,
    reader: LogReader,
) -> RecordedDemand:
    requests, outputs, incomplete, generated, budgets = sums[[0, 4, 5, 6, 7]]
    totals = sums.sum(axis=2)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_prompt, mean_square = totals[1] / totals[0], totals[2] / totals[0]
        mean_output = totals[4] / totals[3]
        fallback = float(totals[4].sum() / totals[3].sum()) if totals[3].sum() else 1.0
        mean_output = np.where(np.isfinite(mean_output), mean_output, fallback)
        variation = np.sqrt(np.maximum(mean_square / mean_prompt**2 - 1.0, 0.0))
    guessed = np.minimum(np.maximum(incomplete * mean_output[:, None], generated), np.maximum(budgets, generated))
    rates = np.stack([requests, outputs + guessed]) / step_s * scale
    rates[:, :, unknown] = np.nan
    lost = int(incomplete.sum())
    notes = [f"{lost} requests did not complete: counted as demand of mean length"] if lost else []
    if seen.repeats:
        notes.append(f"{seen.repeats} repeats of requests are not counted again")
    if seen.client_errors:
        notes.append(f"{seen.client_errors} client errors are not counted")
    notes += [f"{name} left out: {why}" for name, why in sorted(reader.report.skipped.items())]
    notes += outage_note(unknown)
    offered = np.where(totals[0] > 0, (totals[4] + guessed.sum(axis=1)) / np.maximum(totals[0], 1.0), np.nan)
    return RecordedDemand(
        keys, rates[0], rates[1], mean_prompt, offered, step_s, now_s, unknown, tuple(notes), variation
    )
