"""How near the simulator is to real engines, and to Dynamo's simulator on equal step curves.

*Engines*: three recorded runs of vLLM 0.19 (300 chat prompts at 10/s each), request by request. Step times come
from operators measured one by one on the same card, memory from the recording or the catalog. The median absolute
error over all requests is told, without host overhead, and with the one constant a step that fits the E2E of the
first run, applied to all (``+host``). What the second run's own constant would be stands beside it. The third run
has two cards; the operators know nothing of the link between them, and ``+link`` adds the bandwidth that fits its
E2E: one number for three errors. *Catalog*: the same with the catalog's step times, where it has the card.
*Study*: running sequences, memory and first tokens of a served model under steady loads, see
``benchmarks.fidelity.adapter_study``. *Dynamo*: see ``benchmarks.fidelity.two_simulators``; it takes part if
``TOKENFLEET_DYNAMO_PYTHON`` names an interpreter with ``ai-dynamo`` 1.6.1. Recordings and the trace are looked for
in ``TOKENFLEET_SHARED_DATA``, or in ``shared/data`` beside the checkout; without them their rows are left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fidelity.adapter_study import compared, study_runs
from benchmarks.fidelity.engine_replay import RecordedRun, recorded_run, replayed
from benchmarks.fidelity.operator_times import Shape, fitted_times, link_times
from benchmarks.fidelity.two_simulators import Served, curves, ours, theirs, trace
from data.catalog.load import load_catalog
from data.catalog.types import ServiceTimes
from data.types import FloatArray

Row = dict[str, Any]
AREA = "fidelity"
E2E_TARGET, TTFT_TARGET = 0.06, 0.15
TIME_TARGET, HIT_TARGET = 0.05, 0.02
MOST_OVERHEAD_S, MOST_LINK = 0.02, 200e9
REQUESTS, QUICK_REQUESTS = 4000, 1000
SPEEDS = (1.0, 2.0, 4.0)


@dataclass(frozen=True, slots=True)
class SetUp:
    """One recorded run.

    Attributes:
        name: Short name in the table.
        run, profile: Folders below the recordings.
        shape: Of the model.
        catalog: Model, card and cards of the catalog; its memory stands in where the recording tells none.
    """

    name: str
    run: str
    profile: str
    shape: Shape
    catalog: tuple[str, str, int] | None


SET_UPS = (
    SetUp(
        "rtxpro6000-8b",
        "RTXPRO6000/Llama-3.1-8B",
        "RTXPRO6000/meta-llama/Llama-3.1-8B/tp1",
        Shape(32, 4096),
        ("llama-3.1-8b", "RTX-PRO-6000", 1),
    ),
    SetUp("rtx4090-8b", "RTX4090/Llama-3.1-8B", "RTX4090/meta-llama/Llama-3.1-8B/tp1", Shape(32, 4096), None),
    SetUp(
        "rtxpro6000-32b-tp2",
        "RTXPRO6000/Qwen3-32B",
        "RTXPRO6000/Qwen/Qwen3-32B/tp2",
        Shape(64, 5120),
        ("qwen3-32b", "RTX-PRO-6000", 2),
    ),
)


def rows(quick: bool) -> list[Row]:
    """Errors against engines, and differences from the other simulator."""
    data = _data()
    return [*_engines(data / "llmservingsim"), *_study(data, quick), *_other_simulator(data, quick)]


def _engines(folder: Path) -> Iterator[Row]:
    if not (folder / "vllm_runs").is_dir():
        return
    overhead_s: dict[str, float] = {}
    for setup in SET_UPS:
        run = recorded_run(folder / "vllm_runs" / setup.run)
        facts = None if setup.catalog is None else load_catalog().facts(*setup.catalog)
        kv_tokens = run.kv_tokens or (0 if facts is None else facts.kv_capacity_tokens)
        known = {"operators": fitted_times(folder / "op_profiles" / setup.profile, setup.shape).times}
        if facts is not None:
            known["catalog"] = facts.times
        for source, times in known.items():
            if facts is None or facts.tensor_parallel == 1:
                own_s = _fitted(run, kv_tokens, partial(_slower, times), 0.0, MOST_OVERHEAD_S)
                overhead_s.setdefault(source, own_s)
                yield _row(f"{setup.name}/{source}/own_host_overhead", own_s, "s", None, None)
            with_host = _slower(times, overhead_s[source])
            yield from _errors(f"{setup.name}/{source}", run, replayed(run, times, kv_tokens), judged=False)
            yield from _errors(
                f"{setup.name}/{source}+host", run, replayed(run, with_host, kv_tokens), judged=True
            )
            if facts is not None and facts.tensor_parallel > 1:
                yield from _linked(f"{setup.name}/{source}", setup.shape, run, with_host, kv_tokens)


def _linked(name: str, shape: Shape, run: RecordedRun, times: ServiceTimes, kv_tokens: int) -> Iterator[Row]:
    """The bandwidth between cards that fits E2E, and the errors with it."""
    slowness = _fitted(run, kv_tokens, lambda x: link_times(times, shape, 1.0 / x), 1.0 / MOST_LINK, 1e-9)
    yield _row(f"{name}/link_bandwidth", 1.0 / slowness / 1e9, "GB/s", None, None)
    linked = link_times(times, shape, 1.0 / slowness)
    yield from _errors(f"{name}+host+link", run, replayed(run, linked, kv_tokens), judged=True)


def _slower(times: ServiceTimes, overhead_s: float) -> ServiceTimes:
    return replace(times, host_overhead=overhead_s)


def _fitted(
    run: RecordedRun, kv_tokens: int, times: Callable[[float], ServiceTimes], low: float, high: float
) -> float:
    """The value between these at which the median signed error of E2E is 0, by halving."""
    for _ in range(14):
        middle = (low + high) / 2
        signed = np.median(replayed(run, times(middle), kv_tokens)[:, 1] / run.times[:, 1] - 1.0)
        low, high = (middle, high) if signed < 0 else (low, middle)
    return (low + high) / 2


def _errors(name: str, run: RecordedRun, simulated: FloatArray, judged: bool) -> Iterator[Row]:
    ratio = simulated / run.times - 1.0
    for column, (what, target) in enumerate((("ttft", TTFT_TARGET), ("e2e", E2E_TARGET), ("tpot", None))):
        error, signed = float(np.median(np.abs(ratio[:, column]))), float(np.median(ratio[:, column]))
        wanted = target if judged else None
        met = None if wanted is None else error <= wanted
        yield _row(f"engine/{name}/{what}", error, "share", wanted, met, signed=signed)


def _study(data: Path, quick: bool) -> Iterator[Row]:
    """Median absolute error over the runs of the study; ``signed`` and ``worst`` beside it."""
    runs, chat = data / "adapter-serving-h100", data / "llmservingsim" / "vllm_runs" / SET_UPS[0].run
    if not (runs.is_dir() and chat.is_dir()):
        return
    known = study_runs(runs)
    found = list(compared(known[::4] if quick else known, recorded_run(chat).requests))
    for what in ("running", "kv_share", "ttft"):
        errors = np.array([getattr(one, what) for one in found])
        errors = errors[np.isfinite(errors)]
        error, signed, worst = np.median(np.abs(errors)), np.median(errors), np.abs(errors).max()
        yield _row(
            f"study/{what}",
            float(error),
            "share",
            None,
            None,
            signed=float(signed),
            worst=float(worst),
            runs=len(errors),
        )


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
        gap = mean / reference - 1.0
        yield _row(
            f"{name}/{what}_mean", gap, "share", TIME_TARGET, abs(gap) <= TIME_TARGET, ours=mean, theirs=reference
        )
    for what, mine, reference, target in (
        ("hit_rate", one.hit_rate, other.hit_rate, HIT_TARGET),
        ("good_share", one.good_share, other.good_share, TIME_TARGET),
    ):
        gap = mine - reference
        yield _row(f"{name}/{what}", gap, "difference", target, abs(gap) <= target, ours=mine, theirs=reference)


def _data() -> Path:
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("TOKENFLEET_SHARED_DATA", beside))


def _row(name: str, value: float, unit: str, target: float | None, met: bool | None, **more: float) -> Row:
    return {
        "id": f"fidelity/{name}",
        "area": AREA,
        "value": round(value, 5),
        "unit": unit,
        "reference": None,
        "ratio": None,
        "target": target,
        "met": met,
        **{key: round(number, 5) for key, number in more.items()},
    }


if __name__ == "__main__":
    for line in rows(quick=True):
        print(line)
