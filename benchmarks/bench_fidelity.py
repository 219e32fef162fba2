"""How near the simulator is to real engines, and to Dynamo's simulator on equal step curves.

*Engines*: three recorded runs of vLLM 0.19 (300 chat prompts at 10/s each), request by request, see
``benchmarks.fidelity.engines``; *distribution* and *series*: quantiles, and the same runs second by second.
*Profile*: the catalog's steps beside an H200 profile on which nothing was fitted. *Study*: a served model under
loads of 0.4 to 207 requests/s, see ``benchmarks.fidelity.adapter_study``. *Dynamo*: see
``benchmarks.fidelity.two_simulators``; it takes part if ``TOKENFLEET_DYNAMO_PYTHON`` names an interpreter with
``ai-dynamo`` 1.6.1. Recordings and the trace are looked for in ``TOKENFLEET_SHARED_DATA``, or in ``shared/data``
beside the checkout; without them their rows are left out.
Every error is a median of absolute relative errors, ``signed`` the median with its sign, ``worst`` the largest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.fidelity.distributions import distribution_rows
from benchmarks.fidelity.engine_series import series_rows
from benchmarks.fidelity.engines import engine_rows
from benchmarks.fidelity.h200_profile import profile_rows
from benchmarks.fidelity.rows import Row, table_row
from benchmarks.fidelity.study_rows import study_rows
from benchmarks.fidelity.two_simulators import Served, curves, ours, theirs, trace

TIME_TARGET, HIT_TARGET = 0.05, 0.02
REQUESTS, QUICK_REQUESTS = 4000, 1000
SPEEDS = (1.0, 2.0, 4.0)


def rows(quick: bool) -> list[Row]:
    """Errors against engines, and differences from the other simulator."""
    data = shared_data()
    return [
        *engine_rows(data / "llmservingsim"),
        *distribution_rows(data / "llmservingsim"),
        *series_rows(data / "llmservingsim"),
        *profile_rows(data / "dynamo-h200-profile"),
        *study_rows(data, quick),
        *_other_simulator(data, quick),
    ]


def shared_data() -> Path:
    """Folder of recordings and traces."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("TOKENFLEET_SHARED_DATA", beside))


def _other_simulator(data: Path, quick: bool) -> Iterator[Row]:
    python, path = os.environ.get("TOKENFLEET_DYNAMO_PYTHON"), data / "mooncake" / "conversation_trace.jsonl"
    if not python or not path.is_file():
        return
    times, kv_tokens = curves()
    for speed in SPEEDS[-1:] if quick else SPEEDS:
        requests = trace(path, QUICK_REQUESTS if quick else REQUESTS, speed)
        yield from _differences(
            f"dynamo/x{speed:g}", ours(requests, times, kv_tokens), theirs(python, requests, times, kv_tokens)
        )


def _differences(name: str, one: Served, other: Served) -> Iterator[Row]:
    """Ours over the other's, less 1; shares are differences."""
    for column, what in enumerate(("ttft", "e2e", "tpot")):
        mean, reference = (float(np.nanmean(served.times[:, column])) for served in (one, other))
        gap, met = mean / reference - 1.0, abs(mean / reference - 1.0) <= TIME_TARGET
        yield table_row(f"{name}/{what}_mean", gap, "share", TIME_TARGET, met, ours=mean, theirs=reference)
    for what, mine, reference, target in (
        ("hit_rate", one.hit_rate, other.hit_rate, HIT_TARGET),
        ("good_share", one.good_share, other.good_share, TIME_TARGET),
    ):
        gap = mine - reference
        yield table_row(
            f"{name}/{what}", gap, "difference", target, abs(gap) <= target, ours=mine, theirs=reference
        )


if __name__ == "__main__":
    for line in rows(quick=True):
        print(line)
