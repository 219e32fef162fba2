"""Rates of requests and of output tokens by commodity and window, from a trace or from a table of demand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from data.errors import InputError, SettingError
from data.traces.servegen_lengths import Lengths
from data.traces.servegen_rates import DemandWindows
from data.types import FloatArray, TraceBatch
from models.base import BoolArray
from models.demand.history import History
from models.demand.outages import OutageSettings, find_outages
from planner.demand import CommodityKey

NAMES = ("model", "workload_class", "tenant", "origin")
MAX_CELLS = 50_000_000


@dataclass(frozen=True, slots=True)
class Naming:
    """Names of commodities.

    Attributes:
        model, workload_class, tenant, origin: For requests that name none.
        one_tenant: All requests are this tenant's; "" = their own.
        scale: Factor on every rate (above 0).
    """

    model: str = ""
    workload_class: str = ""
    tenant: str = ""
    origin: str = ""
    one_tenant: str = ""
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.scale < 1e12:
            raise SettingError("out of range", field="scale", value=self.scale, expected="above 0")

    def key(self, model: str, workload_class: str, tenant: str, origin: str) -> CommodityKey:
        """The commodity, blanks filled."""
        return (
            model or self.model,
            workload_class or self.workload_class,
            self.one_tenant or tenant or self.tenant,
            origin or self.origin,
        )


@dataclass(frozen=True, slots=True)
class RecordedDemand:
    """What was seen of each commodity.

    Attributes:
        keys: Commodities, sorted.
        requests_per_s, tokens_per_s: Shape (commodities, windows); NaN in an outage.
        input_tokens, output_tokens: Mean lengths by commodity; NaN where there was no request.
        step_s: Length of a window.
        now_s: End of the last window.
        outage: Shape (windows,): windows recorded as zero that are gaps.
        notes: What a reader should know.
        input_variation: Standard deviation of prompts over their mean by commodity, where it was measured.
    """

    keys: tuple[CommodityKey, ...]
    requests_per_s: FloatArray
    tokens_per_s: FloatArray
    input_tokens: FloatArray
    output_tokens: FloatArray
    step_s: float
    now_s: float
    outage: BoolArray
    notes: tuple[str, ...] = field(default=())
    input_variation: FloatArray | None = None

    def history(self) -> History:
        """Both rates of every commodity as series ``requests|…`` and ``tokens|…``, requests first."""
        names = [f"{what}|{'/'.join(key)}" for what in ("requests", "tokens") for key in self.keys]
        values = np.concatenate([self.requests_per_s, self.tokens_per_s])
        return History(tuple(names), values, self.step_s, self.now_s)


def history_from_trace(
    batches: Iterable[TraceBatch], naming: Naming, step_s: float, outages: OutageSettings | None = None
) -> RecordedDemand:
    """Count arrivals and their output tokens in windows of ``step_s`` from time 0, without the last, cut window.

    Raises:
        InputError: No whole window, a blank name, or more than 50 million cells.
    """
    if not 0 < step_s < 1e9:
        raise SettingError("out of range", field="step_s", value=step_s, expected="seconds above 0")
    cells: dict[CommodityKey, dict[int, tuple[int, int, int]]] = {}
    last_s = 0.0
    for batch in batches:
        columns = [getattr(batch, name) or ("",) * len(batch) for name in NAMES]
        window = np.floor(batch.arrival_s / step_s).astype(np.int64)
        last_s = max(last_s, float(batch.arrival_s.max(initial=0.0)))
        rows = zip(
            *columns, window.tolist(), batch.input_tokens.tolist(), batch.output_tokens.tolist(), strict=True
        )
        for model, kind, tenant, origin, at, prompt, output in rows:
            own = cells.setdefault(naming.key(model, kind, tenant, origin), {})
            count, prompts, outputs = own.get(at, (0, 0, 0))
            own[at] = count + 1, prompts + prompt, outputs + output
    windows = int(last_s // step_s)
    if windows < 1:
        raise InputError("the trace is shorter than one window", field="step_s", value=step_s, expected="less")
    if len(cells) * windows > MAX_CELLS:
        raise InputError("too many windows", field="step_s", value=step_s, expected="a longer window")
    keys = tuple(sorted(cells))
    sums = np.zeros((3, len(keys), windows))
    for row, key in enumerate(keys):
        for at, found in cells[key].items():
            if at < windows:
                sums[:, row, at] = found
    return _recorded(keys, sums / step_s * naming.scale, step_s, windows * step_s, outages, ())


def history_from_windows(
    demand: DemandWindows, lengths: Lengths | None, naming: Naming, outages: OutageSettings | None = None
) -> RecordedDemand:
    """Rates of a demand table, the client being the tenant; tokens by the mean lengths of the client at the time.

    A client without lengths takes the mean of the others, weighted by requests. Windows that the table leaves out
    are unknown. Without ``lengths`` a request counts as one token, and the notes say so.
    """
    if not len(demand.start_s):
        raise InputError("the demand table is empty", expected="a row or more")
    starts = np.arange(demand.start_s.min(), demand.start_s.max() + demand.window_s / 2, demand.window_s)
    place = np.rint((demand.start_s - starts[0]) / demand.window_s).astype(np.int64)
    shape = (len(demand.clients), len(starts))
    rate = np.zeros(shape)
    np.add.at(rate, (demand.client, place), demand.rate_per_s)
    absent = np.ones(len(starts), dtype=np.bool_)
    absent[place] = False
    rate[:, absent] = np.nan
    means, notes = _mean_lengths(demand.clients, starts, rate, lengths)
    keys = [naming.key("", "", client, "") for client in demand.clients]
    sums = np.stack([rate, rate * means[0], rate * means[1]]) * naming.scale
    gaps = find_outages(rate, demand.window_s, outages)
    merged, names = _merge(keys, sums)
    merged[:, :, gaps] = np.nan
    now_s = float(starts[-1] + demand.window_s)
    return _recorded(names, merged, demand.window_s, now_s, None, notes, gaps)


def _mean_lengths(
    clients: tuple[str, ...], starts: FloatArray, rate: FloatArray, lengths: Lengths | None
) -> tuple[FloatArray, tuple[str, ...]]:
    """Mean prompt and output tokens, shape (2, clients, windows)."""
    means = np.ones((2, *rate.shape))
    if lengths is None:
        return means, ("no lengths were given: a request counts as one token",)
    unknown = np.array([client not in lengths for client in clients])
    for row, client in enumerate(clients):
        if not unknown[row]:
            means[:, row] = np.array([lengths.means(client, float(at)) for at in starts]).T
    weight = np.nan_to_num(rate[~unknown])
    total = float(weight.sum())
    if not unknown.any():
        return means, ()
    for what in means:
        what[unknown] = float((weight * what[~unknown]).sum()) / total if total > 0 else 1.0
    return means, (
        f"{int(unknown.sum())} of {len(clients)} clients have no lengths and take the mean of the others",
    )


def _merge(keys: list[CommodityKey], sums: FloatArray) -> tuple[FloatArray, tuple[CommodityKey, ...]]:
    names = tuple(sorted(set(keys)))
    place: Mapping[CommodityKey, int] = {key: row for row, key in enumerate(names)}
    merged = np.zeros((3, len(names), sums.shape[2]))
    for row, key in enumerate(keys):
        merged[:, place[key]] += sums[:, row]
    return merged, names


def check_names(keys: Iterable[CommodityKey]) -> None:
    """Every commodity has all its names.

    Raises:
        InputError: One is blank.
    """
    for key in keys:
        for name, value in zip(NAMES, key, strict=True):
            if not value:
                raise InputError("requests name none", field=name, expected=f"a name for them (option {name})")


def outage_note(outage: BoolArray) -> tuple[str, ...]:
    """What a reader should know of windows that are unknown."""
    if not outage.any():
        return ()
    return (f"{int(outage.sum())} of {len(outage)} windows are outages of the collection: not counted",)


def _recorded(
    keys: tuple[CommodityKey, ...],
    sums: FloatArray,
    step_s: float,
    now_s: float,
    outages: OutageSettings | None,
    notes: tuple[str, ...],
    gaps: BoolArray | None = None,
) -> RecordedDemand:
    """From rates of requests, prompt tokens and output tokens, shape (3, commodities, windows)."""
    check_names(keys)
    found = find_outages(sums[0], step_s, outages) if gaps is None else gaps
    sums = np.where(found, np.nan, sums)
    notes = (*notes, *outage_note(found))
    totals = np.nansum(sums, axis=2)
    with np.errstate(invalid="ignore", divide="ignore"):
        prompts, outputs = totals[1] / totals[0], totals[2] / totals[0]
    return RecordedDemand(keys, sums[0], sums[2], prompts, outputs, step_s, now_s, found, notes)
