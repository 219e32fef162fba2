"""One replay of one trace under one scaler, in a process of Dynamo's interpreter."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.replay.workload import TPOT_S, TTFT_S

PROGRAM = "TOKENFLEET_DYNAMO_REPLAY_PYTHON"
ANSWER = "answer "
SCRIPT = Path(__file__).with_name("dynamo_program.py")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a replay gave.

    Attributes:
        sizes: What a scaler wanted, as pairs of time (s) and workers; empty for a fixed size.
    """

    requests: int
    good: int
    gpu_hours: float
    goodput_tokens_per_s: float
    sizes: tuple[tuple[float, int], ...] = ()

    @property
    def good_per_gpu_hour(self) -> float:
        """Requests within their targets for each GPU-hour."""
        return self.good / self.gpu_hours


def interpreter() -> str | None:
    """The interpreter with ``ai-dynamo`` 1.4.2, if the environment names one."""
    return os.environ.get(PROGRAM)


def replay(
    python: str,
    trace: Path,
    engine: dict[str, object],
    workers: int,
    planner: dict[str, object] | None = None,
    ask: Callable[[dict[str, Any]], int] | None = None,
    tick_s: float = 20.0,
) -> Outcome:
    """Run it: with Dynamo's planner, with a scaler of ours that is asked, or with a fixed number of workers.

    Raises:
        RuntimeError: The program ended without a report.
    """
    scaler = "planner" if planner is not None else "ask" if ask is not None else "none"
    wanted = {"trace": str(trace), "engine": engine, "workers": workers, "ttft_ms": 1e3 * TTFT_S,
              "itl_ms": 1e3 * TPOT_S, "scaler": scaler, "planner": planner, "tick_s": tick_s}  # fmt: skip
    with subprocess.Popen(
        [python, str(SCRIPT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        env={**os.environ, "DYN_LOG": "error"},
    ) as program:
        assert program.stdin is not None
        program.stdin.write(json.dumps(wanted) + "\n")
        last: dict[str, Any] = {}
        sizes: list[tuple[float, int]] = []
        for last in _answers(program):
            if ask is not None and "now_s" in last:
                sizes.append((float(last["now_s"]), ask(last)))
                program.stdin.write(f"{sizes[-1][1]}\n")
    if "gpu_hours" not in last:
        raise RuntimeError(f"the replay ended with code {program.returncode} and no report")
    return Outcome(
        int(last["num_requests"]),
        int(last["goodput_completed_requests"]),
        float(last["gpu_hours"]),
        float(last["goodput_output_throughput_tok_s"]),
        tuple(sizes) or tuple((float(at), int(workers)) for at, workers in last["sizes"]),
    )


def _answers(program: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert program.stdout is not None
    for line in program.stdout:
        if line.startswith(ANSWER):
            yield json.loads(line.removeprefix(ANSWER))
