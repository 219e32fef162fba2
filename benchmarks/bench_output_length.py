"""Output-length prediction: pinball loss at 0.1, 0.5 and 0.9 against what others use, request by request.

Every predictor learns only from requests that had finished by then (0.5 s plus 0.03 s a token after arrival). The
oldest 60 % of a trace warm up all predictors and fit the boosted one; the rest is measured. Opponents:

- *mean*: the running mean of the class, or of the class's prompt-length bucket, taken for all three levels;
- *quantiles*: running empirical quantiles of the same two groups, which is the harder comparison.

The traces tell no class and no budget; a budget that never cuts is given, since one made from the length would
give it away. ServeGen's clients are the tenants; those without lengths of their own are left out, and ``floor``
is what knowing each client's distribution of the hour would gain, more than any predictor can. The agentic trace
names no tenants, only sessions. Where a trace cannot be found, a synthetic stream stands in (``/synthetic``).
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.length_rivals import (
    LEVELS,
    KnownDistribution,
    RunningMean,
    RunningQuantiles,
    bucket_key,
    class_key,
)
from data.synth.assign import Assignment
from data.synth.mix import Stream, mix
from data.synth.profiles import PROFILES
from data.traces.options import TraceOptions
from data.traces.registry import open_trace
from data.traces.report import ReadReport
from data.traces.servegen_lengths import read_lengths
from data.traces.source import TextSource
from data.types import FloatArray, Request
from models.length_replay import LengthRow, replay
from models.output_length import LengthQuery, StreamingLengths
from models.output_length_boost import fit_lengths

BUDGET = 1 << 17
FIT_SHARE = 0.6
TARGET = 0.15


def pinball(tokens: int, predicted: FloatArray) -> float:
    """Mean pinball loss over the levels, in tokens."""
    error = tokens - predicted
    return float(np.where(error > 0, LEVELS * error, (LEVELS - 1.0) * error).mean())


@dataclass
class Measured:
    """Losses in tokens; shares strictly below and at or below each quantile; microseconds of a forecast."""

    loss: dict[str, float]
    below: dict[str, FloatArray]
    within: dict[str, FloatArray]
    forecast_us: float

    def coverage_error(self, name: str) -> float:
        """Distance of the levels from what is covered; where many lengths are equal, coverage is a range."""
        short = np.maximum(LEVELS - self.within[name], 0.0)
        return float(np.maximum(short, np.maximum(self.below[name] - LEVELS, 0.0)).max())


def measure(rows: list[LengthRow], floor: KnownDistribution | None) -> Measured:
    """All predictors on the newest part of the rows."""
    cut = int(len(rows) * FIT_SHARE)
    stream, boosted = StreamingLengths(), fit_lengths(rows[:cut])
    opponents: dict[str, RunningMean | RunningQuantiles] = {
        "class_mean": RunningMean(class_key),
        "bucket_mean": RunningMean(bucket_key),
        "class_quantiles": RunningQuantiles(class_key),
        "bucket_quantiles": RunningQuantiles(bucket_key),
    }

    def learn_all(query: LengthQuery, tokens: int) -> None:
        for predictor in (stream, *opponents.values()):
            predictor.observe(query, tokens)
        if learning:
            boosted.observe(query, tokens)

    losses: dict[str, list[float]] = defaultdict(list)
    below: dict[str, list[FloatArray]] = defaultdict(list)
    within: dict[str, list[FloatArray]] = defaultdict(list)
    learning, spent = False, 0.0
    for _ in replay(rows[:cut], learn_all):
        pass
    learning = True  # the boosted one has learned from the first part while it was fitted
    for row in replay(rows[cut:], learn_all):
        began = time.perf_counter()
        ours = {"streaming": np.array(stream.predict(row.query).quantiles)}
        spent += time.perf_counter() - began
        ours["boosted"] = np.array(boosted.predict(row.query).quantiles)
        for name, predicted in ours.items():
            below[name].append(row.output_tokens < predicted)
            within[name].append(row.output_tokens <= predicted)
        if floor is not None:
            ours["floor"] = floor.predict(row.query)
        for name, opponent in opponents.items():
            ours[name] = opponent.predict(row.query)
        for name, predicted in ours.items():
            losses[name].append(pinball(row.output_tokens, predicted))
    return Measured(
        loss={name: float(np.mean(values)) for name, values in losses.items()},
        below={name: np.mean(values, axis=0) for name, values in below.items()},
        within={name: np.mean(values, axis=0) for name, values in within.items()},
        forecast_us=spent / (len(rows) - cut) * 1e6,
    )


def length_rows(requests: Iterator[Request], most: int, known: Callable[[str], bool]) -> list[LengthRow]:
    """The first ``most`` requests of tenants that are ``known``."""
    turns: dict[str, int] = defaultdict(int)
    found = []
    for one in requests:
        if not known(one.tenant):
            continue
        query = LengthQuery(
            one.workload_class, one.tenant, one.model, one.input_tokens, BUDGET, one.session_id,
            turns[one.session_id] if one.session_id else 0, one.arrival_s,
        )  # fmt: skip
        turns[one.session_id] += 1
        found.append(LengthRow(query, one.output_tokens, one.arrival_s + 0.5 + 0.03 * one.output_tokens))
        if len(found) == most:
            break
    return found


def shared_data() -> Path:
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("TOKENFLEET_SHARED_DATA", beside))


@dataclass
class Data:
    """Rows of one trace; ``suffix`` ends the ids of its rows."""

    name: str
    rows: list[LengthRow]
    tenants_known: bool
    floor: KnownDistribution | None = None
    suffix: str = ""


def from_file(name: str, path: Path, options: TraceOptions, most: int) -> Data:
    """Rows of a trace file; of ServeGen only clients that have lengths."""
    requests = (one for batch in open_trace(path, None, options).batches() for one in batch.rows())
    if options.lengths is None:
        return Data(name, length_rows(requests, most, lambda _: True), False)
    lengths = read_lengths(TextSource(options.lengths), ReadReport(source=str(options.lengths), format=""))
    return Data(name, length_rows(requests, most, lengths.__contains__), True, KnownDistribution(lengths))


def synthetic(names: tuple[str, ...], rate_per_s: float, most: int) -> list[LengthRow]:
    """A stream of each profile; with several, each is a tenant of its own."""
    streams = tuple(
        Stream(PROFILES[name], rate_per_s, Assignment("m@1", name if len(names) > 1 else "", "", (("", 1.0),)))
        for name in names
    )
    batches = mix(streams, duration_s=most / rate_per_s, seed=0)
    return length_rows((one for batch in batches for one in batch.rows()), most, lambda _: True)


def traces(quick: bool) -> Iterator[Data]:
    """Every trace, or what stands in for it."""
    root, most = shared_data(), 30_000 if quick else 100_000
    scale = 1.0 if quick else 3.0
    generated = {"m-large": 2.4e-4 * scale, "m-mid": 3e-5 * scale, "deepseek-r1": 2.5e-2 * scale}
    files: dict[str, tuple[str, TraceOptions, tuple[str, ...], float]] = {
        "azure-conv": ("azure-llm-2023/AzureLLMInferenceTrace_conv.csv", TraceOptions(), ("chat",), 5.0),
        "agentic-coding": (
            "agentic-coding/sessions.jsonl.gz", TraceOptions(closed_loop=False), ("agentic",), 1.0,
        ),
    }  # fmt: skip
    for name, rate in generated.items():
        days, kind = ("", "datasets.json.gz") if name == "deepseek-r1" else (".day0-10", "length_quantiles")
        lengths = root / "servegen" / (f"{name}.{kind}" if not days else f"{name}.{kind}{days}.csv.gz")
        options = TraceOptions(rate_scale=rate, lengths=lengths)
        tenants = ("chat", "code", "conversation", "document", "batch")
        files[f"servegen-{name}"] = (f"servegen/{name}.rates{days}.csv.gz", options, tenants, 1.0)
    stood_in = False
    for name, (file, options, profiles, rate_per_s) in files.items():
        path, tenants_known = root / file, name.startswith("servegen")
        if path.is_file():
            yield from_file(name, path, options, most)
        elif not (tenants_known and stood_in):
            stood_in = stood_in or tenants_known
            stream = synthetic(profiles, rate_per_s, min(most, 20_000))
            yield Data(name, stream, tenants_known, suffix="/synthetic")


def rows(quick: bool) -> list[dict[str, Any]]:
    """For each trace and predictor: the gain over points and over quantiles, and coverage."""
    found = []
    for data in traces(quick):
        measured, name = measure(data.rows, data.floor), data.name
        for kind in ("mean", "quantiles"):
            rival = min(f"class_{kind}", f"bucket_{kind}", key=lambda one: measured.loss[one])
            reference = f"{rival}: {measured.loss[rival]:.4g} tokens; {len(data.rows)} requests"
            for ours in ("streaming", "boosted"):
                gain = 1.0 - measured.loss[ours] / measured.loss[rival]
                target = TARGET if data.tenants_known else None
                found.append(row(f"{name}/{ours}/over_{kind}{data.suffix}", gain, "relative", reference, target))
            if data.floor is not None:
                gain = 1.0 - measured.loss["floor"] / measured.loss[rival]
                found.append(row(f"{name}/floor/over_{kind}{data.suffix}", gain, "relative", reference, None))
        for ours in ("streaming", "boosted"):
            shares = ", ".join(f"{share:.3f}" for share in measured.within[ours])
            error = measured.coverage_error(ours)
            found.append(
                row(f"{name}/{ours}/coverage_error{data.suffix}", error, "share", f"covered {shares}", None)
            )
        found.append(
            row(f"{name}/streaming/forecast{data.suffix}", measured.forecast_us, "us", "mean of one call", None)
        )
    return found


def row(id_: str, value: float, unit: str, reference: str, least: float | None) -> dict[str, Any]:
    """One measured value; ``least`` is its target, if it has one."""
    return {
        "id": f"output_length/{id_}",
        "area": "output_length",
        "value": value,
        "unit": unit,
        "reference": reference,
        "ratio": 1.0 - value if unit == "relative" else None,
        "target": None if least is None else f">= {least:g}",
        "met": None if least is None else value >= least,
    }


if __name__ == "__main__":
    for one in rows(quick=True):
        print(f"{one['id']:<64} {one['value']:8.3f} {one['unit']:<9} {one['target'] or '':<8} {one['reference']}")
