"""Dynamo's offline replay of one trace under one scaler; run by an interpreter that has ``ai-dynamo`` 1.4.2.

The first line of standard input is a JSON object: ``trace`` (a Mooncake JSONL file), ``engine`` (arguments of the
mock engine), ``workers`` (at the start), ``ttft_ms`` and ``itl_ms`` (targets), ``scaler``, and ``planner`` or
``tick_s``. With the scaler ``none`` nothing changes, with ``planner`` Dynamo's own planner runs. With ``ask`` each
tick prints what the replay tells a scaler, and the next line of standard input is the number of workers wanted.
The last line printed is the report, with ``sizes``: pairs of time (s) and workers that Dynamo's planner wanted.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from typing import Any

BLOCK_TOKENS = 512
ANSWER = "answer "
"""Begins each line that is meant for the caller: libraries print lines of their own."""


class Asked:
    """A scaler that asks on standard output and reads the answer from standard input."""

    def __init__(self, tick_s: float) -> None:
        self._tick_ms = 1000.0 * tick_s

    def initial_tick_ms(self) -> float:
        """The first question."""
        return self._tick_ms

    def on_tick(self, snapshot: dict[str, Any]) -> dict[str, float | int]:
        """Ask with the traffic since the last question."""
        workers = snapshot["non_draining_decode_count"]
        say({"now_s": snapshot["now_ms"] / 1000.0, "traffic": snapshot.get("traffic"), "workers": workers})
        wanted = int(sys.stdin.readline())
        return {"target_prefill": 0, "target_decode": wanted, "next_tick_ms": snapshot["now_ms"] + self._tick_ms}


def say(message: dict[str, Any]) -> None:
    """One line for the caller."""
    print(ANSWER + json.dumps(message), flush=True)


def replay(wanted: dict[str, Any]) -> dict[str, Any]:
    """Run it; the report's plain figures, and the sizes that Dynamo's planner wanted."""
    from dynamo._core import MockEngineArgs, run_mocker_trace_replay  # type: ignore[import-not-found]
    from dynamo.replay.api import run_trace_replay  # type: ignore[import-not-found]

    common = {
        "extra_engine_args": MockEngineArgs.from_json(json.dumps(wanted["engine"])),
        "num_workers": wanted["workers"],
        "router_mode": "round_robin",
        "trace_block_size": BLOCK_TOKENS,
        "sla_ttft_ms": wanted["ttft_ms"],
        "sla_itl_ms": wanted["itl_ms"],
    }
    sizes: list[tuple[float, int]] = []
    if wanted["scaler"] == "planner":
        planned = run_trace_replay(wanted["trace"], planner_config=wanted["planner"], **common)
        report, sizes = planned.trace_report, [(event.at_s, event.to_count) for event in planned.scaling_events]
    else:
        scaler = Asked(wanted["tick_s"]) if wanted["scaler"] == "ask" else None
        report = run_mocker_trace_replay([wanted["trace"]], scaling_policy=scaler, **common)
    plain = {key: value for key, value in report.items() if isinstance(value, int | float)}
    return {**plain, "sizes": sizes}


def main() -> None:
    """One replay."""
    wanted = json.loads(sys.stdin.readline())
    with tempfile.TemporaryDirectory() as folder:
        if wanted["scaler"] == "planner":
            quiet = {"report_output_dir": folder, "report_interval_hours": None, "live_dashboard_port": 0}
            wanted["planner"] = {**quiet, **wanted["planner"]}
        with open(os.devnull, "w") as nothing, contextlib.redirect_stderr(nothing):  # noqa: PTH123
            report = replay(wanted)
    say(report)


if __name__ == "__main__":
    main()
