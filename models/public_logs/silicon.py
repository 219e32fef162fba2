"""Measured serving points of a closed loop: ``silicon_sample.csv[.gz]``, a run for each configuration.

A configuration is backend, model, system, precision and parallel layout. A row is the mean of a benchmark at
fixed prompt length, output length and concurrency (``batch_size`` a data-parallel rank), times in ms.
Disaggregated points have no batch size and are left out; so are rows that repeat another one under a new id. TTFT
holds the waiting of the closed loop.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from models.features import EndpointKind
from models.public_logs.log import NO_TIMES, Columns, PublicLog, public_log
from models.public_logs.reading import csv_rows, find, numbers
from models.signals import Signals

_FIELDS = ("isl", "osl", "batch_size", "tp_size", "pp_size", "silicon_ttft_ms", "silicon_tpot_ms")
_LAYOUT = ("tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
_CONFIG = ("backend", "model_path", "system", "precision", *_LAYOUT)
_TEXTS = ("backend", "precision", "backend_version", "gemm_quant_mode")
KV_TOKENS = 1e9
"""The file does not tell the KV memory; every point did run."""


def load(path: Path) -> PublicLog:
    """Rows of the file or of its folder; ``runs`` are the configurations, fields joined by ``|``."""
    file = path if path.is_file() else find(path, "silicon_sample.csv")
    dropped: Counter[str] = Counter()
    rows, texts, seen = [], [], set()
    for row in csv_rows(file, ("id", "mode", *_CONFIG, *_FIELDS)):
        if row["mode"] != "agg":
            dropped["disaggregated"] += 1
            continue
        found = numbers(row, _FIELDS)
        same = tuple(value for name, value in row.items() if name not in ("id", "silicon_data_source"))
        if found is None:
            dropped["bad_number"] += 1
        elif min(found[:5]) <= 0:
            dropped["missing_prompt_length"] += 1
        elif found[5] <= 0 or found[6] <= 0:
            dropped["no_time"] += 1
        elif same in seen:
            dropped["repeated"] += 1
        else:
            seen.add(same)
            rows.append([*found, *(_layout(row[name]) for name in _LAYOUT)])
            texts.append(row)
    table = np.array(rows).reshape(-1, len(_FIELDS) + len(_LAYOUT))
    isl, osl, batch, _, _, ttft_ms, tpot_ms, tp, pp, dp, moe_tp, ep = table.T
    running, zero = batch * dp - 1.0, np.zeros(len(rows))
    config = ["|".join(row[name] for name in _CONFIG) for row in texts]
    runs = sorted(set(config))
    kinds, kind = _kinds(texts, tp * pp * dp)
    extra = {"tp": tp, "pp": pp, "dp": dp, "moe_tp": moe_tp, "ep": ep, "output_tokens": osl}
    for name in _TEXTS:
        found_texts = [row.get(name, "") for row in texts]
        known = sorted(set(found_texts))
        extra[name] = np.array([known.index(one) for one in found_texts], dtype=np.float64)
    held = running * (isl + osl / 2)
    columns = Columns(
        kind, np.array([runs.index(one) for one in config], np.int64), np.arange(len(rows), dtype=np.float64),
        isl, zero, osl, ttft_ms / 1e3, zero + np.nan, np.where(osl > 1, tpot_ms / 1e3, np.nan), osl - 1.0,
        Signals(zero, zero, zero, zero, running, running * (isl + osl), held / KV_TOKENS, held, zero), extra,
    )  # fmt: skip
    return public_log("silicon", columns, kinds, runs, dropped)


def _layout(text: str) -> float:
    """A parallel size; empty and 0 stand for 1 (not used)."""
    return max(float(text), 1.0) if text else 1.0


def _kinds(texts: list[dict[str, str]], gpus: np.ndarray) -> tuple[list[EndpointKind], np.ndarray]:
    keys = [
        (
            row["system"],
            float(count),
            f"{row['model_path'].split('/')[-1].lower()}@{row['precision'] or 'default'}",
        )
        for row, count in zip(texts, gpus, strict=True)
    ]
    known = sorted(set(keys))
    kinds = [EndpointKind(system, count, model, 8192.0, KV_TOKENS, NO_TIMES) for system, count, model in known]
    return kinds, np.array([known.index(key) for key in keys], dtype=np.int64)
