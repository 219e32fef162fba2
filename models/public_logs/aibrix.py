"""Requests of 8-replica fleets under several routers: ``requests.csv[.gz]``, a run for each offered rate.

Which replica served a request is not recorded, so the rows describe the fleet as one endpoint of eight GPUs, and
the router stands in the model key: ``llama-3.1-8b@SYSTEM.CAMPAIGN``. Rates followed each other against the same
caches, so what a user sent before, at any rate of the campaign, counts as history. Rates are not independent of
one another: campaigns ran them in opposite orders.
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

REPLICAS = 8.0
KV_TOKENS = 430_000.0 * REPLICAS
BUDGET = 100.0
"""Output bound of nearly every request."""
_FIELDS = (
    "offered_qps",
    "prompt_tokens",
    "generation_tokens",
    "ttft",
    "generation_time",
    "launch_time",
    "finish_time",
)
_NEVER_S = 1e5
EXTRA = ("user_gap_s", "others_since_user", "user_turns", "recent_ttft_s", "recent_hit_share", "launched_10s")


def load(path: Path) -> PublicLog:
    """Rows of the file or of its folder; ``runs`` are ``qps=RATE``, whatever the system."""
    file = path if path.is_file() else find(path, "requests.csv")
    dropped: Counter[str] = Counter()
    keys, users, rows = [], [], []
    for row in csv_rows(file, ("campaign", "system", "user_id", *_FIELDS)):
        found = numbers(row, _FIELDS)
        if found is None:
            dropped["bad_number"] += 1
        elif found[1] <= 0:
            dropped["missing_prompt_length"] += 1
        elif found[2] <= 0 or found[3] <= 0 or found[6] <= found[5]:
            dropped["no_time"] += 1
        else:
            keys.append((row["system"], row["campaign"]))
            users.append(row["user_id"])
            rows.append(found)
    qps, tokens, outputs, ttft, generation, start, end = np.array(rows).reshape(-1, len(_FIELDS)).T
    systems, rates = sorted(set(keys)), sorted(set(qps.tolist()))
    kind = np.array([systems.index(key) for key in keys], dtype=np.int64)
    gaps = outputs - 1.0
    load, extra = np.empty((len(rows), 5)), np.empty((len(rows), len(EXTRA)))
    for number in range(len(systems)):
        mine = np.flatnonzero(kind == number)
        now = in_flight(start[mine], start[mine] + ttft[mine], end[mine], tokens[mine])
        load[mine] = np.column_stack([now.waiting, now.waiting_tokens, now.head_s, now.generating, now.tokens])
        extra[mine] = _history(start[mine], ttft[mine], [users[row] for row in mine.tolist()])
    waiting, waiting_tokens, head, generating, inside = load.T
    kv = np.minimum(inside - waiting_tokens, KV_TOKENS)
    nothing = np.full(len(rows), np.nan)
    columns = Columns(
        kind, np.array([rates.index(one) for one in qps.tolist()], dtype=np.int64), start, tokens,
        np.zeros(len(rows)), np.full(len(rows), BUDGET), ttft, nothing,
        np.where(gaps > 0, generation / np.maximum(gaps, 1.0), np.nan), gaps,
        Signals(
            waiting, waiting_tokens, nothing, head, generating, inside, kv / KV_TOKENS, kv, np.zeros(len(rows)),
        ),
        dict(zip(EXTRA, extra.T, strict=True)),
    )  # fmt: skip
    kinds = [_kind(system, campaign) for system, campaign in systems]
    return public_log("aibrix", columns, kinds, [f"qps={rate:g}" for rate in rates], dropped)


def _kind(system: str, campaign: str) -> EndpointKind:
    gpu = "A100-80G" if campaign == "v0.2.1" else f"A100-80G.{campaign}"
    return EndpointKind(gpu, REPLICAS, f"llama-3.1-8b@{system}.{campaign}", 8192.0, KV_TOKENS, NO_TIMES)


def _history(start: FloatArray, ttft: FloatArray, users: list[str]) -> FloatArray:
    """What a router knows at each start of earlier requests (``EXTRA``); only first tokens before it count."""
    order = np.argsort(start, kind="stable")
    first = start + ttft
    by_first = np.argsort(first, kind="stable")
    firsts, times = first[by_first], ttft[by_first]
    sums = np.concatenate([[0.0], np.cumsum(np.log(times))])
    hits = np.concatenate([[0.0], np.cumsum(times < 0.6)])
    last: dict[str, tuple[float, int, int]] = {}
    found = np.empty((len(start), len(EXTRA)))
    starts = start[order]
    for place, row in enumerate(order.tolist()):
        now = float(start[row])
        before, position, turns = last.get(users[row], (now - _NEVER_S, -int(_NEVER_S), 0))
        done = int(np.searchsorted(firsts, now, side="left"))
        window = min(done, 20)
        mean = float(np.exp((sums[done] - sums[done - window]) / window)) if window else np.nan
        share = float((hits[done] - hits[done - window]) / window) if window else np.nan
        recent = place - int(np.searchsorted(starts, now - 10.0))
        found[row] = (now - before, place - position, turns, mean, share, recent)
        last[users[row]] = (now, place, turns + 1)
    return found
