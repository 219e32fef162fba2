"""Columns of the decision and outcome log, version 3.

A *decision* is written when an endpoint was chosen (or refused), an *outcome* when the attempt ended. They are
joined on ``(request_id, attempt)``. Times are seconds; ``decided_s`` is the clock that partitions use. No prompt
text, token ids or credentials: counts and opaque hashes only.

Missing values are null, never 0: a predictor that had no answer leaves nulls.
"""

from __future__ import annotations

import pyarrow as pa

SCHEMA_VERSION = 3

DECISIONS = pa.schema(
    [
        pa.field("request_id", pa.int64(), nullable=False),
        pa.field("attempt", pa.int16(), nullable=False),
        pa.field("decided_s", pa.float64(), nullable=False),
        pa.field("policy", pa.dictionary(pa.int32(), pa.string())),
        pa.field("model", pa.dictionary(pa.int32(), pa.string())),
        pa.field("tenant", pa.dictionary(pa.int32(), pa.string())),
        pa.field("workload_class", pa.dictionary(pa.int32(), pa.string())),
        pa.field("origin", pa.dictionary(pa.int32(), pa.string())),
        pa.field("endpoint", pa.dictionary(pa.int32(), pa.string())),
        pa.field("site", pa.dictionary(pa.int32(), pa.string())),
        pa.field("gpu_type", pa.dictionary(pa.int32(), pa.string())),
        pa.field("gpus", pa.int16()),
        # What the router knew of the chosen endpoint when it decided: the features of the latency models.
        pa.field("input_tokens", pa.int32()),
        pa.field("hit_tokens", pa.int32()),
        pa.field("output_budget", pa.int32()),
        pa.field("expected_output_tokens", pa.float32()),
        pa.field("queue_depth", pa.float32()),
        pa.field("running", pa.float32()),
        pa.field("waiting_prefill_tokens", pa.float32()),
        pa.field("waiting_prefill_s", pa.float32()),
        pa.field("prefill_elapsed_s", pa.float32()),
        pa.field("inflight_tokens", pa.float32()),
        pa.field("kv_use", pa.float32()),
        pa.field("kv_tokens", pa.float32()),
        pa.field("prefill_load", pa.float32()),
        pa.field("batch_token_budget", pa.int32()),
        pa.field("metrics_age_s", pa.float32()),
        pa.field("rtt_s", pa.float32()),
        # What the models said then; null where they said nothing.
        pa.field("predicted_ttft_p50_s", pa.float32()),
        pa.field("predicted_ttft_p90_s", pa.float32()),
        pa.field("predicted_tpot_p50_s", pa.float32()),
        pa.field("predicted_tpot_p90_s", pa.float32()),
        pa.field("model_version", pa.dictionary(pa.int32(), pa.string())),
        pa.field("candidates", pa.int32()),
        pa.field("degraded", pa.dictionary(pa.int32(), pa.string())),
    ],
    metadata={"tokenfleet_table": "decisions", "tokenfleet_schema": str(SCHEMA_VERSION)},
)

OUTCOMES = pa.schema(
    [
        pa.field("request_id", pa.int64(), nullable=False),
        pa.field("attempt", pa.int16(), nullable=False),
        pa.field("finished_s", pa.float64(), nullable=False),
        pa.field("status", pa.int8(), nullable=False),
        pa.field("ttft_s", pa.float32()),
        pa.field("tpot_s", pa.float32()),
        pa.field("e2e_s", pa.float32()),
        pa.field("cached_tokens", pa.int32()),
        pa.field("output_tokens", pa.int32()),
        pa.field("preemptions", pa.int16()),
        pa.field("reason", pa.dictionary(pa.int32(), pa.string())),
    ],
    metadata={"tokenfleet_table": "outcomes", "tokenfleet_schema": str(SCHEMA_VERSION)},
)
"""``ttft_s`` and ``e2e_s`` here count from *this attempt's* decision, without the network round trip: it is
what a latency model must predict. After a cancel before the first token ``ttft_s`` is null and ``e2e_s`` is its
lower bound."""
