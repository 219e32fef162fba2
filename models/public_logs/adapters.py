"""Adapter-serving study: 1,540 vLLM runs on one card, ``runs.csv[.gz]``: one row a run, medians of its requests.

The engine's load is the mean over the run's own series, which the file already holds (``run_mean``,
``wait_mean``, ``kv_mean``); runs without one are left out. They describe the run after the fact: a router could
not have had them. A run of one output token has no TPOT. Half of the runs are overloaded: their TTFT is the
length of the run, not of a queue, and no load at a moment tells it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from models.features import EndpointKind
from models.public_logs.log import NO_TIMES, Columns, PublicLog, public_log
from models.public_logs.reading import csv_rows, find, numbers
from models.signals import Signals

KV_TOKENS = 334_944.0
_FIELDS = (
    "success", "duration_s", "in_tokens", "out_tokens", "req_per_s", "ttft_median_ms", "tpot_median_ms",
    "run_mean", "wait_mean", "kv_mean",
)  # fmt: skip
EXTRA = ("max_num_seqs", "max_loras", "max_cpu_loras", "max_lora_rank", "adapters", "offered_req_per_s")


def load(path: Path) -> PublicLog:
    """Rows of the file or of its folder; ``runs`` are groups: the origin's folders above the single runs."""
    file = path if path.is_file() else find(path, "runs.csv")
    dropped: Counter[str] = Counter()
    rows, models, groups, extra = [], [], [], []
    for row in csv_rows(file, ("run", "model", *_FIELDS, *EXTRA)):
        if not row["run_mean"]:
            dropped["no_series"] += 1
            continue
        found = numbers(row, _FIELDS)
        if found is None:
            dropped["bad_number"] += 1
        elif found[0] < 1 or found[2] <= 0 or found[5] <= 0:
            dropped["no_time"] += 1
        else:
            rows.append(found)
            models.append(row["model"])
            groups.append("/".join(row["run"].rstrip("/").split("/")[:-1]))
            extra.append([(numbers(row, (name,)) or [float("nan")])[0] for name in EXTRA])
    table = np.array(rows).reshape(-1, len(_FIELDS))
    done, _, tokens, outputs, rate, ttft_ms, tpot_ms, running, waiting, kv_use = table.T
    prompt, output, zero = tokens / done, outputs / done, np.zeros(len(rows))
    names, runs = sorted(set(models)), sorted(set(groups))
    kinds = [EndpointKind("H100-64G", 1.0, f"{name}@1", 2048.0, KV_TOKENS, NO_TIMES) for name in names]
    has_tpot = (tpot_ms > 0) & (output > 1)
    columns = Columns(
        np.array([names.index(name) for name in models], np.int64),
        np.array([runs.index(name) for name in groups], np.int64),
        np.arange(len(rows), dtype=np.float64), prompt, zero, output, ttft_ms / 1e3, zero + np.nan,
        np.where(has_tpot, tpot_ms / 1e3, np.nan), np.where(has_tpot, output - 1.0, 0.0),
        Signals(
            waiting, waiting * prompt, zero + np.nan, zero, running, (running + waiting) * prompt,
            np.clip(kv_use, 0.0, 1.0), np.clip(kv_use, 0.0, 1.0) * KV_TOKENS, zero,
        ),
        dict(zip(EXTRA, np.array(extra).reshape(-1, len(EXTRA)).T, strict=True)) | {"req_per_s": rate},
    )  # fmt: skip
    return public_log("adapters", columns, kinds, runs, dropped)
