"""Requests to try a plan on: those of the log's last window, or drawn from a demand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from data.fleet.types import Fleet
from data.types import Request, Status
from planner.demand import CommodityKey, DemandRow, DemandTable
from planner.demand_history import NAMES, Naming
from planner.demand_trace import unknown_name
from planner.loop.shadow import Window

SIGMA_LEAST = 1e-6


def drawn_window(
    demand: DemandTable, fleet: Fleet, window_s: float, most_requests: int, seeds: int, variation: float = 1.0
) -> Window:
    """Poisson arrivals at the median demand, lognormal lengths, a list for each seed.

    The window is cut to hold ``most_requests`` on average. Lengths are those of the demand, else of the class.

    Args:
        demand: Output tokens/s by commodity.
        fleet: Gives the lengths of classes.
        window_s: Longest window (above 0).
        most_requests: Requests of one list, about (1 or more).
        seeds: Lists.
        variation: Standard deviation of lengths over their mean, where the demand has none (0 or more).
    """
    means = [_lengths(row, fleet) for row in demand.rows]
    rates = [row.median / output for row, (_, output) in zip(demand.rows, means, strict=True)]
    total = sum(rates)
    if total <= 0:
        return Window((), window_s, "demand")
    span_s = min(window_s, most_requests / total)
    lists = []
    for seed in range(seeds):
        generator = np.random.default_rng([seed, 7])
        drawn: list[tuple[float, DemandRow, int, int]] = []
        for row, rate, (prompt, output) in zip(demand.rows, rates, means, strict=True):
            count = int(generator.poisson(rate * span_s))
            at = generator.uniform(0.0, span_s, count)
            spread = variation if row.input_variation is None else row.input_variation
            prompts = _draw(generator, prompt, spread, count)
            outputs = _draw(generator, output, variation, count)
            drawn += [(float(at[i]), row, int(prompts[i]), int(outputs[i])) for i in range(count)]
        drawn.sort(key=lambda one: (one[0], one[1].key))
        lists.append(
            tuple(_request(i, at, row.key, prompt, output) for i, (at, row, prompt, output) in enumerate(drawn))
        )
    return Window(tuple(lists), span_s, "requests drawn from the demand")


def logged_window(
    table: pa.Table, naming: Naming, fleet: Fleet, since_s: float, window_s: float, most_requests: int, seeds: int
) -> Window:
    """First attempts of a window of the log; seeds differ in the engines' noise alone.

    The log keeps no prefixes, so that no prompt is found cached. Answers of unknown length take the mean of the
    others. The window is cut from the front to hold ``most_requests``; requests that the fleet could not serve
    (names it does not know) are left out.
    """
    rows = table.to_pydict()
    kept: list[tuple[float, CommodityKey, int, int | None]] = []
    for i in range(len(table)):
        key = naming.key(*(rows[name][i] or "" for name in NAMES))
        if rows["attempt"][i] or rows["status"][i] == Status.CLIENT_ERROR or unknown_name(key, fleet):
            continue
        done = rows["status"][i] == Status.COMPLETED
        output = rows["output_tokens"][i] if done else None
        kept.append((rows["decided_s"][i], key, max(int(rows["input_tokens"][i] or 1), 1), output))
    kept = sorted(kept, key=lambda one: one[0])[-most_requests:]
    known = [output for *_, output in kept if output]
    if not known:
        return Window((), window_s, "log")
    mean = max(int(sum(known) / len(known)), 1)
    first_s = since_s if len(kept) < most_requests else kept[0][0]
    span_s = max(since_s + window_s - first_s, 1.0)
    requests = tuple(
        _request(i, at - first_s, key, prompt, output or mean) for i, (at, key, prompt, output) in enumerate(kept)
    )
    return Window((requests,) * seeds, span_s, "requests of the log's last window")


def _lengths(row: DemandRow, fleet: Fleet) -> tuple[float, float]:
    kind = fleet.workload_class(row.workload_class)
    prompt = kind.expected_input_tokens if row.input_tokens is None else row.input_tokens
    output = kind.expected_output_tokens if row.output_tokens is None else row.output_tokens
    return max(float(prompt), 1.0), max(float(output), 1.0)


def _draw(generator: np.random.Generator, mean: float, variation: float, count: int) -> Sequence[int]:
    """Lognormal lengths of this mean, 1 or more."""
    sigma = max(float(np.sqrt(np.log1p(variation**2))), SIGMA_LEAST)
    drawn = generator.lognormal(np.log(mean) - sigma**2 / 2, sigma, count)
    lengths: list[int] = np.clip(np.rint(drawn), 1, 50 * mean).astype(np.int64).tolist()
    return lengths


def _request(number: int, at_s: float, key: CommodityKey, prompt: int, output: int) -> Request:
    model, kind, tenant, origin = key
    return Request(
        number, at_s, prompt, output, output, model=model, tenant=tenant, workload_class=kind, origin=origin
    )
