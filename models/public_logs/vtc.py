"""Per-request results of fair-scheduling runs under overload: ``runs.csv[.gz]``, a run for each setting.

A first-token latency of −1 is a refusal by a rate limit: counted as ``rejected``, never a sample. Runs below
``ablation/`` are Llama-2-13b on an 80-GB A100, the others Llama-2-7b on a 24-GB A10G.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from data.types import FloatArray
from models.features import EndpointKind
from models.public_logs.in_flight import in_flight
from models.public_logs.log import NO_TIMES, Columns, PublicLog, public_log
from models.public_logs.reading import csv_rows, find, numbers
from models.signals import Signals

KINDS = (
    EndpointKind("A10G", 1.0, "llama-2-7b@1", 2048.0, 10_000.0, NO_TIMES),
    EndpointKind("A100-80G", 1.0, "llama-2-13b@1", 2048.0, 35_000.0, NO_TIMES),
)
"""KV pools: the 13b runs name theirs; 10,000 tokens are what a 24-GB card leaves beside the 7b weights."""
BUDGET = 1024.0
_FIELDS = ("prompt_len", "output_len", "first_token_latency", "request_latency", "req_time")


def load(path: Path) -> PublicLog:
    """Rows of the file or of its folder; ``runs`` keep the log's names, in its order."""
    file = path if path.is_file() else find(path, "runs.csv")
    dropped: Counter[str] = Counter()
    by_run: dict[str, list[list[float]]] = {}
    for row in csv_rows(file, ("run", *_FIELDS)):
        rows = by_run.setdefault(row["run"], [])
        found = numbers(row, _FIELDS)
        if found is None:
            dropped["bad_number"] += 1
        elif found[2] == -1.0 or found[3] == -1.0:
            dropped["rejected"] += 1
        elif found[0] <= 0:
            dropped["missing_prompt_length"] += 1
        elif not 0 < found[2] <= found[3]:
            dropped["no_time"] += 1
        else:
            rows.append(found)
    names = [name for name, rows in by_run.items() if rows]
    parts = [_run(np.array(by_run[name]), number) for number, name in enumerate(names)]
    table = np.concatenate(parts) if parts else np.empty((0, 16))
    run = table[:, 0].astype(np.int64)
    large = np.array([name.startswith("ablation/") for name in names], dtype=np.int64)
    kind = large[run] if len(run) else run
    capacity = np.array([one.kv_capacity_tokens for one in KINDS])[kind]
    start, tokens, ttft, tpot, gaps, waiting, waiting_tokens, head, generating, inside = table[:, 1:11].T
    kv = np.minimum(inside - waiting_tokens, capacity)
    nothing, zero = np.full(len(run), np.nan), np.zeros(len(run))
    columns = Columns(
        kind, run, start, tokens, zero, zero + BUDGET, ttft, nothing, tpot, gaps,
        Signals(waiting, waiting_tokens, nothing, head, generating, inside, kv / capacity, kv, zero),
    )  # fmt: skip
    return public_log("vtc", columns, KINDS, names, dropped)


def _run(rows: FloatArray, run: int) -> FloatArray:
    tokens, outputs, ttft, latency, start = rows.T
    now = in_flight(start, start + ttft, start + latency, tokens)
    gaps = np.maximum(outputs - 1.0, 0.0)
    tpot = np.where((gaps > 0) & (latency > ttft), (latency - ttft) / np.maximum(gaps, 1.0), np.nan)
    return np.column_stack([
        np.full(len(start), float(run)), start, tokens, ttft, tpot, np.where(np.isnan(tpot), 0.0, gaps),
        now.waiting, now.waiting_tokens, now.head_s, now.generating, now.tokens,
    ])  # fmt: skip
