"""ServeGen demand tables: requests/s of each client in each window, with the burstiness inside the window.

CSV with ``client, start_s, rate_per_s, cv, dist, param1, param2``: one row a client and window, gaps inside a
window Gamma or Weibull with (shape, scale) = (param1, param2); an empty distribution is an idle window. Windows in
which every client is idle are outages of the collection, not absence of demand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.errors import TraceError
from data.traces.chunk import BoolArray
from data.traces.csv_lines import count_of, csv_blocks, text_of
from data.traces.report import ReadReport, Reject
from data.traces.source import TextSource
from data.types import FloatArray, IntArray

NEEDED = ("client", "starts", "ratepers", "cv", "dist", "param1", "param2")
MAX_WINDOWS = 5_000_000
MAX_RATE_PER_S = 1e6


@dataclass(frozen=True, slots=True)
class DemandWindows:
    """Demand by client and window, sorted by start and then client.

    Attributes:
        client: Index into ``clients``.
        start_s: Start of the window on the file's own clock.
        rate_per_s: Mean requests/s in the window.
        shape: Shape of the distribution of gaps; 0 where the window is idle.
        is_weibull: Gaps are Weibull rather than Gamma.
        window_s: Length of a window.
        clients: Names of the clients.
    """

    client: IntArray
    start_s: FloatArray
    rate_per_s: FloatArray
    shape: FloatArray
    is_weibull: BoolArray
    window_s: float
    clients: tuple[str, ...]

    def totals(self) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Start, total requests/s and whether the window is an outage (zero over all clients), by window."""
        starts, place = np.unique(self.start_s, return_inverse=True)
        total = np.zeros(len(starts))
        np.add.at(total, place, self.rate_per_s)
        return starts, total, total == 0


def read_demand(source: TextSource, report: ReadReport, max_rows: int | None = None) -> DemandWindows:
    """The whole table (about 100 bytes a row in memory, at most 5 million rows).

    Raises:
        TraceError: A column is missing, there are too many rows, or windows differ in length.
    """
    rows: list[tuple[float, int, float, float, bool]] = []
    clients: dict[str, int] = {}
    for block in csv_blocks(source, report, NEEDED, (), max_rows):
        for number, cells in block.rows:
            row = _row(number, cells, clients, report)
            if row is not None:
                rows.append(row)
        if len(rows) > MAX_WINDOWS:
            raise TraceError(f"has more than {MAX_WINDOWS} windows", source=str(source.path))
    rows.sort(key=lambda row: row[:2])
    columns = list(zip(*rows, strict=True)) or [(), (), (), (), ()]
    start_s = np.array(columns[0], dtype=np.float64)
    return DemandWindows(
        client=np.array(columns[1], dtype=np.int64),
        start_s=start_s,
        rate_per_s=np.array(columns[2], dtype=np.float64),
        shape=np.array(columns[3], dtype=np.float64),
        is_weibull=np.array(columns[4], dtype=np.bool_),
        window_s=_window_s(start_s, source),
        clients=tuple(clients),
    )


def _row(
    number: int, cells: list[bytes], clients: dict[str, int], report: ReadReport
) -> tuple[float, int, float, float, bool] | None:
    client, start, rate, _, dist, shape, _ = cells
    kind = text_of(dist).lower()
    try:
        start_s, rate_per_s = float(count_of(start)), float(rate)
        shape_of = float(shape) if kind else 0.0
        if not 0 <= rate_per_s <= MAX_RATE_PER_S or kind not in ("", "gamma", "weibull"):
            raise ValueError(f"a rate of 0 to {MAX_RATE_PER_S:g} with Gamma or Weibull gaps is expected")
        if kind and not 1e-3 <= shape_of <= 1e6:
            raise ValueError("a shape of 0.001 to 1e6 is expected")
    except ValueError as error:
        report.reject(Reject.BAD_FIELD, number, str(error))
        return None
    place = clients.setdefault(text_of(client), len(clients))
    return start_s, place, rate_per_s if kind else 0.0, shape_of, kind == "weibull"


def _window_s(start_s: FloatArray, source: TextSource) -> float:
    """The usual distance of window starts, of which the others are whole multiples; 600 s for a single window."""
    steps = np.diff(np.unique(start_s))
    if not len(steps):
        return 600.0
    found, counts = np.unique(steps, return_counts=True)
    window = float(found[np.argmax(counts)])
    if np.any(np.abs(found / window - np.round(found / window)) > 1e-6):
        raise TraceError("windows differ in length", source=str(source.path), field="start_s", value=window)
    return window
