"""Sequences that run and wait and memory in use, second by second, of a recorded run beside the simulator's.

The three runs get 10 requests/s, about twice what they can carry, so the queue is due to load. The recorder's
clock starts with the process; the shift at which its requests in flight are those of the request log is taken off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.csv as csv

from benchmarks.fidelity.engine_replay import RecordedRun, one_replica
from benchmarks.fidelity.engines import SET_UPS, case_of
from benchmarks.fidelity.rows import Row, table_row
from data.catalog.types import ServiceTimes
from data.types import FloatArray

WHAT = ("running", "waiting", "kv_share")
POINT_S = 0.5
SHIFTS_S = np.arange(-3.0, 10.0, 0.1)


@dataclass(frozen=True, slots=True)
class Series:
    """Shapes (points,) and (points, 3): seconds since the first request; running, waiting, share of memory."""

    at_s: FloatArray
    states: FloatArray

    def at(self, seconds: FloatArray) -> FloatArray:
        """States at these moments, linear between points, 0 after the end."""
        columns = [np.interp(seconds, self.at_s, column, right=0.0) for column in self.states.T]
        return np.column_stack(columns)


def recorded_series(folder: Path, run: RecordedRun) -> Series:
    """The engine's own report of a run, once a second."""
    table = csv.read_csv(folder / "timeseries.csv")
    at_s, running, waiting, percent = (
        table.column(name).to_numpy().astype(np.float64) for name in ("t", "running", "waiting", "kv_cache_pct")
    )
    starts = np.array([request.arrival_s for request in run.requests])
    ends = starts + run.times[:, 1]
    gaps = [np.abs(_in_flight(starts, ends, at_s - shift) - running - waiting).sum() for shift in SHIFTS_S]
    states = np.column_stack([running, waiting, percent / 100.0])
    return Series(at_s - float(SHIFTS_S[int(np.argmin(gaps))]), states)


def simulated_series(run: RecordedRun, times: ServiceTimes, kv_tokens: int) -> Series:
    """The same of the simulator."""
    line = one_replica(run.requests, run.engine, times, kv_tokens, POINT_S).result.timeline
    states = np.column_stack([line.running.sum(axis=1), line.waiting.sum(axis=1), line.kv_use.sum(axis=1)])
    return Series(np.arange(len(states), dtype=np.float64) * line.step_s, states)


def series_rows(folder: Path) -> Iterator[Row]:
    """Mean over the run, ours over the engine's less 1, and the mean gap as a share of the engine's mean."""
    if not (folder / "vllm_runs").is_dir():
        return
    for setup in SET_UPS:
        case = case_of(folder, setup)
        recorded = recorded_series(folder / "vllm_runs" / setup.run, case.run)
        at_s = recorded.at_s[recorded.at_s >= 0.0]
        seen, made = recorded.at(at_s), simulated_series(case.run, case.known_times, case.kv_tokens).at(at_s)
        for column, what in enumerate(WHAT):
            real, ours = seen[:, column], made[:, column]
            if real.max() > 0.0:
                gap = float(np.abs(ours - real).mean() / real.mean())
                yield table_row(
                    f"series/{setup.name}/{what}",
                    gap,
                    "share",
                    None,
                    None,
                    signed=float(ours.mean() / real.mean() - 1.0),
                    peak=float(real.max()),
                    our_peak=float(ours.max()),
                )


def _in_flight(starts: FloatArray, ends: FloatArray, at_s: FloatArray) -> FloatArray:
    begun, ended = (np.searchsorted(np.sort(moments), at_s, "right") for moments in (starts, ends))
    count: FloatArray = (begun - ended).astype(np.float64)
    return count
