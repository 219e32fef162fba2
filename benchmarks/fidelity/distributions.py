"""Distributions of a recorded run's times beside the simulator's: the same quantiles of both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.fidelity.engine_replay import replayed
from benchmarks.fidelity.engines import SET_UPS, TARGETS, case_of
from benchmarks.fidelity.rows import Row, table_row

QUANTILES = (0.1, 0.5, 0.9, 0.99)


def distribution_rows(folder: Path) -> Iterator[Row]:
    """Ours over the engine's less 1 at each quantile of TTFT, E2E and TPOT; none without recordings."""
    if not (folder / "vllm_runs").is_dir():
        return
    for setup in SET_UPS:
        case = case_of(folder, setup)
        made = np.quantile(replayed(case.run, case.known_times, case.kv_tokens), QUANTILES, axis=0)
        seen = np.quantile(case.run.times, QUANTILES, axis=0)
        for column, (what, _) in enumerate(TARGETS):
            for quantile, ours, engines in zip(QUANTILES, made[:, column], seen[:, column], strict=True):
                name = f"distribution/{setup.name}/{what}/p{100 * quantile:g}"
                figures = {"ours": float(ours), "engine": float(engines)}
                yield table_row(name, float(ours / engines - 1.0), "share", None, None, **figures)
