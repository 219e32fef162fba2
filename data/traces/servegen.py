"""ServeGen demand made into requests: each client and window yields its own number of requests at its burstiness.

A window's number of requests is rate times length (times ``rate_scale``, rounded at random), their gaps follow the
window's distribution and are stretched to fill it. Prompt and output lengths are drawn from the file given as
``lengths``. The client is the tenant. Everything is seeded; requests carry no prefix. Memory: the demand table,
the length distributions and the requests of one window (about 100 bytes each, at most 20 million).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from data.errors import TraceError
from data.traces.assemble import Finish
from data.traces.batches import TextColumn
from data.traces.checks import budgets
from data.traces.formats import Head, TraceFormat
from data.traces.options import TraceOptions
from data.traces.report import ReadReport, Repair
from data.traces.servegen_lengths import Lengths, read_lengths
from data.traces.servegen_rates import NEEDED, DemandWindows, read_demand
from data.traces.source import TextSource
from data.types import FloatArray, IntArray, TraceBatch

MAX_WINDOW_REQUESTS = 20_000_000


def read(source: TextSource, options: TraceOptions, report: ReadReport) -> Iterator[TraceBatch]:
    """Batches of generated requests in order of arrival.

    ``report.rows`` counts generated requests, which are all accepted, and the bad rows of the demand table.

    Raises:
        TraceError: The table cannot be read, or no file of lengths is given.
    """
    if options.lengths is None:
        raise TraceError(
            "holds rates, not requests",
            source=str(source.path),
            expected="a file of length distributions to draw requests with (option lengths)",
        )
    demand = read_demand(source, report, options.max_rows)
    report.rows = report.rejected_rows
    report.time_unit, report.time_unit_reason = "s", "the format's own"
    lengths = read_lengths(TextSource(options.lengths), report)
    _note_outages(demand, report)
    finish = Finish(options, report, own_ids=False)
    rng = np.random.default_rng(options.seed)
    shift_s = float(demand.start_s[0]) if options.rebase is not False and len(demand.start_s) else 0.0
    edges = np.flatnonzero(np.diff(demand.start_s, prepend=-np.inf, append=np.inf))
    for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        batch = _window(demand, slice(start, stop), lengths, shift_s, options, report, rng)
        report.rows += len(batch)
        yield from finish.push(batch)


def _note_outages(demand: DemandWindows, report: ReadReport) -> None:
    starts, _, outage = demand.totals()
    if outage.any():
        report.notes.append(f"{int(outage.sum())} of {len(starts)} windows are zero for every client: outages")


def _window(
    demand: DemandWindows,
    rows: slice,
    lengths: Lengths,
    shift_s: float,
    options: TraceOptions,
    report: ReadReport,
    rng: np.random.Generator,
) -> TraceBatch:
    """All requests of one window, sorted by arrival."""
    at_s = float(demand.start_s[rows.start])
    expected = demand.rate_per_s[rows] * demand.window_s * options.rate_scale
    if expected.sum() > MAX_WINDOW_REQUESTS:
        raise TraceError(
            f"more than {MAX_WINDOW_REQUESTS} requests in the window at {at_s:g} s",
            source=report.source,
            expected="a smaller rate_scale",
        )
    counts = np.floor(expected + rng.random(len(expected))).astype(np.int64)
    parts: list[tuple[FloatArray, IntArray, IntArray]] = []
    for place in np.flatnonzero(counts).tolist():
        row, count = rows.start + place, int(counts[place])
        client = demand.clients[int(demand.client[row])]
        if client not in lengths:
            report.repair_count(Repair.LENGTHS_POOLED, count, f"client {client}")
        offsets = arrivals(count, float(demand.shape[row]), bool(demand.is_weibull[row]), rng) * demand.window_s
        parts.append((offsets, *lengths.draw(client, at_s, rng, count)))
    tenants = np.repeat(demand.client[rows], counts).astype(np.int32)
    offset = np.concatenate([part[0] for part in parts]) if parts else np.zeros(0)
    order = np.argsort(offset, kind="stable")
    n_in = np.concatenate([part[1] for part in parts])[order] if parts else np.zeros(0, dtype=np.int64)
    n_out = np.concatenate([part[2] for part in parts])[order] if parts else np.zeros(0, dtype=np.int64)
    return TraceBatch(
        request_id=np.zeros(len(order), dtype=np.int64),
        arrival_s=at_s - shift_s + offset[order],
        input_tokens=n_in,
        output_tokens=n_out,
        output_budget=budgets(n_out, options.output_budget_tokens),
        hash_offsets=np.zeros(len(order) + 1, dtype=np.int64),
        hashes=np.zeros(0, dtype=np.uint64),
        tenant=TextColumn(tenants[order], demand.clients) if len(order) else (),
    )


def arrivals(count: int, shape: float, weibull: bool, rng: np.random.Generator) -> FloatArray:
    """``count`` arrivals in [0, 1) with gaps of this shape, as one turn of a ring that starts anywhere.

    The ring keeps the number exact and gives every moment of the window the same mean rate.
    """
    gaps = rng.weibull(shape, count) if weibull else rng.standard_gamma(shape, count)
    total = float(gaps.sum())
    if not 0 < total < np.inf:
        return np.sort(rng.random(count))
    turned = (np.cumsum(gaps) / total + rng.random()) % 1.0
    return np.sort(turned)


def sniff(head: Head) -> str | None:
    """Why this looks like a ServeGen demand table, or ``None``."""
    if set(NEEDED) <= set(head.csv_names):
        return "CSV with client, start_s, rate_per_s, dist and param1"
    return None


FORMAT = TraceFormat(
    name="servegen",
    description="ServeGen demand table: requests/s by client and window, made into requests",
    sniff=sniff,
    read=read,
)
