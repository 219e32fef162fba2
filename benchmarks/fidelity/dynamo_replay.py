"""Dynamo's offline replay of one trace, round robin; run by an interpreter that has ``ai-dynamo`` 1.6.1.

Reads a JSON object from standard input: ``trace`` (a Mooncake JSONL file), ``profile`` (an NPZ of step times),
``workers``, ``blocks`` and ``block_tokens`` of a worker, ``batch_tokens``, ``sequences``. Prints one: ``requests``
(TTFT and E2E in seconds and output tokens, in order of arrival) and ``hit_rate``.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module

TRACE_BLOCK_TOKENS = 512


def main() -> None:
    os.environ["DYN_LOG"] = "error"
    replay, core = import_module("dynamo.replay"), import_module("dynamo._core")

    asked = json.load(sys.stdin)
    timing = {"type": "external", "provider": "dynamo_profile", "config": {"path": asked["profile"]}}
    engine = {
        "num_gpu_blocks": asked["blocks"],
        "block_size": asked["block_tokens"],
        "max_num_batched_tokens": asked["batch_tokens"],
        "max_num_seqs": asked["sequences"],
        "timing_model": timing,
    }
    report = replay.run_trace_replay(
        asked["trace"],
        extra_engine_args=core._normalize_mocker_config({"engine": engine}),
        num_workers=asked["workers"],
        router_mode="round_robin",
        trace_block_size=TRACE_BLOCK_TOKENS,
        capture_per_request=True,
    ).to_dict()
    rows = sorted(report["per_request"], key=lambda row: row["arrival_time_ms"])
    requests = [[row["ttft_ms"] / 1e3, row["e2e_latency_ms"] / 1e3, row["output_length"]] for row in rows]
    hit_rate = report["summary"]["first_admission_prefix_cache_reused_ratio"]
    print(json.dumps({"requests": requests, "hit_rate": hit_rate}))


if __name__ == "__main__":
    main()
