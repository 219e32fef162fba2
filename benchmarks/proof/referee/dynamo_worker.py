"""Dynamo's offline replay, one worker after the other; run by an interpreter that has ``ai-dynamo`` 1.6.1.

Reads a JSON object from standard input: ``workers``, each with ``trace`` (a Mooncake JSONL file), ``profile``
(an NPZ of step times), ``trace_block_tokens``, ``blocks``, ``block_tokens``, ``batch_tokens`` and ``sequences``.
Prints one as its last line: ``workers``, a list of requests for each, in order of arrival, a request being its
prompt tokens, output tokens, reused prompt tokens, TTFT and E2E in seconds.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any


def served(worker: dict[str, Any]) -> list[list[float]]:
    """The requests of one worker."""
    replay, core = import_module("dynamo.replay"), import_module("dynamo._core")
    engine = {
        "num_gpu_blocks": worker["blocks"],
        "block_size": worker["block_tokens"],
        "max_num_batched_tokens": worker["batch_tokens"],
        "max_num_seqs": worker["sequences"],
        "timing_model": {
            "type": "external",
            "provider": "dynamo_profile",
            "config": {"path": worker["profile"]},
        },
    }
    report = replay.run_trace_replay(
        worker["trace"],
        extra_engine_args=core._normalize_mocker_config({"engine": engine}),
        num_workers=1,
        router_mode="round_robin",
        trace_block_size=worker["trace_block_tokens"],
        capture_per_request=True,
    ).to_dict()
    rows = sorted(report["per_request"], key=lambda row: row["arrival_time_ms"])
    return [
        [
            row["input_length"],
            row["output_length"],
            row["reused_input_tokens"],
            row["ttft_ms"] / 1e3,
            row["e2e_latency_ms"] / 1e3,
        ]
        for row in rows
    ]


def main() -> None:
    os.environ["DYN_LOG"] = "error"
    asked = json.load(sys.stdin)
    print(json.dumps({"workers": [served(worker) for worker in asked["workers"]]}))


if __name__ == "__main__":
    main()
