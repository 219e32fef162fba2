"""BurstGPT requests replayed against one vLLM engine at several paces: a run for each pace.

Folder with ``detail_log_scaleN.json[.gz]`` (requests) and ``vllm_log_scaleN.csv[.gz]`` (engine, every 0.5 s) on
one clock. A request started ``total_chunk_time`` before its ``record_time``. Outputs are in characters, so there
is no TPOT: the rows have TTFT alone. The card is not named: 24 GB, its step times have to be fitted.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np

from data.errors import LogError
from data.types import FloatArray
from models.features import EndpointKind
from models.public_logs.in_flight import in_flight
from models.public_logs.log import NO_TIMES, Columns, PublicLog, public_log
from models.public_logs.reading import csv_rows, find, json_value, numbers
from models.public_logs.series import join_series
from models.signals import Signals

KV_TOKENS = 600_000.0
"""KV memory beside the 1B model, to within a fifth: 560,000 by memory arithmetic, 700,000 by the logged percent
against the requests in flight."""
KIND = EndpointKind("24GB", 1.0, "llama-3.2-1b@1", 2048.0, KV_TOKENS, NO_TIMES)
BUDGET = 1024.0
_FIELDS = ("record_time", "total_chunk_time", "first_chunk_time", "in_len")
_SERIES = ("timestamp", "num_running", "num_pending", "gpu_kvcache_usage")


def load(folder: Path) -> PublicLog:
    """All paces of a folder, in rising order; ``runs`` are ``scaleN``."""
    names = {
        int(match[1]) for path in folder.glob("*") if (match := re.match(r"detail_log_scale(\d+)\.", path.name))
    }
    if not names:
        raise LogError("no detail_log_scaleN.json", source=str(folder))
    dropped: Counter[str] = Counter()
    parts = [_run(folder, scale, run, dropped) for run, scale in enumerate(sorted(names))]
    table, signals = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    run, start, tokens, ttft = table.T
    nothing, n = np.full(len(run), np.nan), len(run)
    columns = Columns(
        np.zeros(n, np.int64), run.astype(np.int64), start, tokens, np.zeros(n), np.full(n, BUDGET), ttft,
        nothing, nothing, np.zeros(n), Signals(*signals[:, :9].T),
        {"engine_running": signals[:, 9], "engine_waiting": signals[:, 10]},
    )  # fmt: skip
    return public_log("burstgpt", columns, [KIND], [f"scale{scale}" for scale in sorted(names)], dropped)


def _run(folder: Path, scale: int, run: int, dropped: Counter[str]) -> tuple[FloatArray, FloatArray]:
    records = json_value(find(folder, f"detail_log_scale{scale}.json"))
    if not isinstance(records, dict):
        raise LogError("not an object of requests", source=f"detail_log_scale{scale}.json")
    rows = []
    for record in records.values():
        found = numbers(record, _FIELDS) if isinstance(record, dict) else None
        if found is None:
            dropped["bad_number"] += 1
        elif not 0 < found[2] <= found[1]:
            dropped["no_time"] += 1
        elif found[3] <= 0:
            dropped["missing_prompt_length"] += 1
        else:
            rows.append((found[0] - found[1], found[2], found[0], found[3]))
    start, ttft, end, tokens = np.array(rows).reshape(-1, 4).T
    sampled = [numbers(row, _SERIES) for row in csv_rows(find(folder, f"vllm_log_scale{scale}.csv"), _SERIES)]
    engine = np.array(sorted(row for row in sampled if row is not None)).reshape(-1, 4)
    dropped["bad_series_row"] += sum(row is None for row in sampled)
    seen, age = join_series(start, engine[:, 0], engine[:, 1:])
    load = in_flight(start, start + ttft, end, tokens)
    kv_use = np.minimum(seen[:, 2] / 100.0, 1.0)
    signals = np.column_stack([
        load.waiting, load.waiting_tokens, np.full(len(start), np.nan), load.head_s, load.generating, load.tokens,
        kv_use, kv_use * KV_TOKENS, age, seen[:, 0], seen[:, 1],
    ])  # fmt: skip
    return np.column_stack([np.full(len(start), float(run)), start, tokens, ttft]), signals
