"""Real vLLM runs kept by LLMServingSim: ``vllm_runs/GPU/MODEL`` with requests, engine series and settings.

The wall clock ``arrival_time`` and the engine's monotonic clock differ: times are taken on the engine's clock,
TTFT from ``queued_ts``. The series counts seconds from the start of the run. KV use reads 0 throughout for one
card; KV tokens are rebuilt from the requests in flight instead, for all.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from data.catalog.load import load_catalog
from data.catalog.priced import priced_times
from data.catalog.types import ServiceTimes
from data.errors import InputError, LogError
from data.types import FloatArray
from models.features import EndpointKind
from models.public_logs.in_flight import in_flight
from models.public_logs.log import NO_TIMES, Columns, PublicLog, public_log
from models.public_logs.reading import csv_rows, find, json_lines, json_value, numbers
from models.public_logs.series import join_series
from models.signals import Signals

KV_DEFAULT = {"RTXPRO6000/Llama-3.1-8B": 520_000.0, "RTXPRO6000/Qwen3-32B": 380_000.0}
"""KV tokens by memory arithmetic where ``meta.json`` lacks them: (0.9 × memory − weights) / bytes a token."""
CATALOG_CARDS = {"RTXPRO6000": "RTX-PRO-6000"}
"""Cards that the catalog has, by the log's name."""
_FIELDS = ("input_toks", "output_toks", "queued_ts", "first_token_ts", "last_token_ts")
_SERIES = ("t", "running", "waiting", "kv_cache_pct")


def load(folder: Path) -> PublicLog:
    """All runs below a folder; ``runs`` are ``GPU/MODEL``."""
    root = folder / "vllm_runs" if (folder / "vllm_runs").is_dir() else folder
    runs = sorted(path.parent for path in root.glob("*/*/requests.jsonl*"))
    if not runs:
        raise LogError("no GPU/MODEL/requests.jsonl", source=str(folder))
    dropped: Counter[str] = Counter()
    kinds = [_kind(run) for run in runs]
    parts = [_run(path, number, kinds[number], dropped) for number, path in enumerate(runs)]
    run, start, tokens, budget, ttft, tpot, gaps, *load = np.concatenate(parts).T
    number = run.astype(np.int64)
    columns = Columns(
        number, number, start, tokens, np.zeros(len(run)), budget, ttft, np.full(len(run), np.nan), tpot, gaps,
        Signals(*load[:9]), {"engine_running": load[9], "engine_waiting": load[10]},
    )  # fmt: skip
    return public_log("llmservingsim", columns, kinds, [f"{one.parent.name}/{one.name}" for one in runs], dropped)


def _kind(run: Path) -> EndpointKind:
    meta = json_value(find(run, "meta.json"))
    engine = meta["engine_kwargs"]
    name = f"{run.parent.name}/{run.name}"
    capacity = float(meta.get("kv_cache", {}).get("num_kv_tokens") or KV_DEFAULT.get(name, 400_000.0))
    gpus, budget = float(engine["tensor_parallel_size"]), float(engine["max_num_batched_tokens"])
    times = _times(run.parent.name, run.name.lower(), int(gpus))
    return EndpointKind(run.parent.name, gpus, f"{run.name.lower()}@1", budget, capacity, times)


def _times(card: str, model: str, gpus: int) -> ServiceTimes:
    """Step times of the catalog where it has the card and the model; else NaN, to be fitted.

    A fit knows nothing of a model that it has not seen on the card; the catalog does. Its host overhead and link
    were fitted on these very runs, so they are left out.
    """
    if card not in CATALOG_CARDS:
        return NO_TIMES
    try:
        return priced_times(load_catalog().facts(model, CATALOG_CARDS[card], gpus))
    except InputError:
        return NO_TIMES


def _run(path: Path, run: int, kind: EndpointKind, dropped: Counter[str]) -> FloatArray:
    rows = []
    for record in json_lines(find(path, "requests.jsonl"), dropped):
        found = numbers(record, _FIELDS)
        if found is None:
            dropped["bad_number"] += 1
        elif not found[2] < found[3] <= found[4]:
            dropped["no_time"] += 1
        elif found[0] <= 0 or found[1] < 1:
            dropped["missing_prompt_length"] += 1
        else:
            rows.append(found)
    tokens, outputs, start, first, last = np.array(rows).reshape(-1, 5).T
    sampled = [numbers(row, _SERIES) for row in csv_rows(find(path, "timeseries.csv"), _SERIES)]
    dropped["bad_series_row"] += sum(row is None for row in sampled)
    engine = np.array(sorted(row for row in sampled if row is not None)).reshape(-1, 4)
    seen, age = join_series(start - start.min(), engine[:, 0], engine[:, 1:])
    now = in_flight(start, first, last, tokens)
    generated = np.maximum(now.tokens - now.waiting_tokens, 0.0)
    kv = np.minimum(generated, kind.kv_capacity_tokens)
    gaps = outputs - 1.0
    tpot = np.where(gaps > 0, (last - first) / np.maximum(gaps, 1.0), np.nan)
    return np.column_stack([
        np.full(len(start), float(run)), start, tokens, np.full(len(start), 32768.0), first - start, tpot, gaps,
        now.waiting, now.waiting_tokens, np.full(len(start), np.nan), now.head_s, now.generating, now.tokens,
        kv / kind.kv_capacity_tokens, kv, age, seen[:, 0], seen[:, 1],
    ])  # fmt: skip
