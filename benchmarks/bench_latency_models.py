"""Latency models on public logs: median absolute relative error on runs, levels or configurations left out.

For each log, split and time five recipes on the same rows (``benchmarks.latency_rivals``): the constant median,
the prior alone, the peer's recipe, the router's own recipe, and ours with the log's own columns. All settings are
the same for all logs. The rows of all folds are pooled. Without the data there are no rows.

Where a target is missed, and for BurstGPT, ``spread`` is what stays unexplained: the median relative difference
between requests that met the same state (nearest neighbours in prompt, queue, running, KV use).
The full run adds the coverage of the 0.9 quantile on left-out runs, after a conformal step on other left-out runs.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.latency_rivals import RECIPES, Fold, folds, quantile
from data.types import FloatArray, IntArray
from models.base import BoolArray
from models.features import INDEX
from models.public_logs.log import PublicLog
from models.public_logs.registry import load_public_log
from models.public_logs.residual import conformal_factor

LEVEL = 0.9
SAME_STATE = ("input_tokens", "queue_depth", "running", "waiting_prefill_tokens", "kv_use")


@dataclass(frozen=True)
class Task:
    """A log, how it is split, and the target of each time (median error; ``None`` = report)."""

    source: str
    folder: str
    split: str
    targets: dict[str, float | None]
    spread: bool = False


TASKS = (
    Task("burstgpt", "burstgpt-vllm-replay", "levels", {"ttft_s": 0.10}, spread=True),
    Task("llmservingsim", "llmservingsim", "random_fifth", {"ttft_s": 0.03, "tpot_s": 0.04}),
    Task("llmservingsim", "llmservingsim", "run_of_same_card", {"ttft_s": None, "tpot_s": None}),
    Task("silicon", "aiconfigurator", "configurations", {"ttft_s": None, "tpot_s": 0.08}),
    Task("aibrix", "aibrix-fleet", "rates", {"ttft_s": 0.35, "tpot_s": None}),
    Task("adapters", "adapter-serving-h100", "groups", {"ttft_s": None, "tpot_s": None}),
    Task("vtc", "vtc", "runs", {"ttft_s": None, "tpot_s": None}),
)


def parts(log: PublicLog, split: str) -> IntArray:
    """Fold of each row; −1 = always in training."""
    run, runs = log.samples.run, len(log.runs)
    if split == "random_fifth":
        return np.random.default_rng(0).integers(0, 5, len(run))
    if split == "run_of_same_card":
        cards = [name.split("/")[0] for name in log.runs]
        shared = [number for number, card in enumerate(cards) if cards.count(card) > 1]
        return np.array([shared.index(one) if one in shared else -1 for one in run.tolist()])
    if split == "levels":
        return run
    if split == "rates":
        return run % 3
    found: IntArray = (np.random.default_rng(0).permutation(runs) % 5)[run]
    return found


def measure(task: Task, log: PublicLog, quick: bool) -> Iterator[dict[str, Any]]:
    """Rows of one task."""
    part = parts(log, task.split)
    errors: dict[tuple[str, str], list[FloatArray]] = defaultdict(list)
    covered: dict[str, list[BoolArray]] = defaultdict(list)
    for number in range(int(part.max()) + 1):
        for target, fold in folds(log, part == number, tuple(task.targets)).items():
            observed = fold.seconds[fold.test]
            for name, recipe in RECIPES.items():
                errors[target, name].append(np.abs(recipe(fold) / observed - 1.0))
            if not quick and part.max() > 1:
                covered[target].append(observed <= upper(fold, part, number))
    head = f"latency_models/{task.source}/{task.split}"
    for target, limit in task.targets.items():
        found = {name: float(np.median(np.concatenate(errors[target, name]))) for name in RECIPES}
        count = sum(len(one) for one in errors[target, "ours"])
        note = f"{count} rows; left out: {log.samples.dropped or 'none'}"
        for name in RECIPES:
            mine = name == "ours"
            yield row(f"{head}/{target[:-2]}/{name}", found[name], note, found["peer"], limit if mine else None)
        if target in covered:
            share = float(np.concatenate(covered[target]).mean())
            yield row(f"{head}/{target[:-2]}/coverage_{LEVEL:g}", share, note, None, None)
        if task.spread or (limit is not None and found["ours"] > limit):
            yield row(f"{head}/{target[:-2]}/spread", spread(log, target), "same state, other outcome", None, None)


def upper(fold: Fold, part: IntArray, number: int) -> FloatArray:
    """The 0.9 quantile of the test rows, calibrated on the next fold, which the fit then does not see."""
    apart = part == (number + 1) % (int(part.max()) + 1)
    held = np.flatnonzero(fold.train & apart)
    both = quantile(fold, fold.train & ~apart, np.concatenate([held, fold.test]), LEVEL)
    factor = conformal_factor(fold.seconds[held], both[: len(held)], LEVEL)
    return factor * both[len(held) :]


def spread(log: PublicLog, target: str) -> float:
    """Median relative difference of each row's time from that of the row in the most similar state."""
    from scipy.spatial import cKDTree

    seconds = getattr(log.samples, target)
    known = seconds > 0
    state = np.log1p(log.samples.features[np.ix_(known, [INDEX[name] for name in SAME_STATE])])
    state /= np.maximum(state.std(axis=0), 1e-9)
    _, near = cKDTree(state).query(state, k=2)
    times = seconds[known]
    return float(np.median(np.abs(times[near[:, 1]] / times - 1.0)))


def rows(quick: bool) -> list[dict[str, Any]]:
    """Every task whose data is there."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    root = Path(os.environ.get("TOKENFLEET_SHARED_DATA", beside))
    found: list[dict[str, Any]] = []
    for task in TASKS:
        folder = root / task.folder
        if not folder.is_dir():
            print(f"latency_models: no data of {task.source} at {folder}, no rows", file=sys.stderr, flush=True)
            continue
        found.extend(measure(task, load_public_log(task.source, folder), quick))
    return found


def row(id_: str, value: float, note: str, peer: float | None, most: float | None) -> dict[str, Any]:
    """One measured value; ``most`` is its target, if it has one."""
    return {
        "id": id_,
        "area": "latency_models",
        "value": value,
        "unit": "share",
        "reference": note if peer is None else f"peer's recipe {peer:.3g}; {note}",
        "ratio": None if peer is None else value / peer,
        "target": None if most is None else f"<= {most:g}",
        "met": None if most is None else value <= most,
    }


if __name__ == "__main__":
    for one in rows(quick="--full" not in sys.argv):
        mark = {True: "met", False: "MISSED", None: ""}[one["met"]]
        print(f"{one['id']:<60} {one['value']:8.3f} {one['target'] or '':<8} {mark:<7} {one['reference'][:70]}")
