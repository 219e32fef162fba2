"""SGLang's metrics (``/metrics`` of the server, when it is started with ``--enable-metrics``)."""

from __future__ import annotations

from router.engines import aliases as q
from router.engines.aliases import Alias, EngineAdapter, Row, Series
from router.engines.process import PROCESS_START

SGLANG = EngineAdapter(
    kind="sglang",
    path="/metrics",
    form="text",
    source="docs.sglang.io references/production_metrics and the server's metrics collector, read November 2026",
    shard_labels=("tp_rank", "pp_rank", "moe_ep_rank"),
    part_labels=("priority",),
    rows=(
        Row(
            q.RUNNING, "sum", (Alias(Series("sglang:num_running_reqs"), "production metrics page"),), required=True
        ),
        Row(q.WAITING, "sum", (Alias(Series("sglang:num_queue_reqs"), "production metrics page"),), required=True),
        Row(
            q.KV_USE,
            "max",
            (Alias(Series("sglang:token_usage"), "production metrics page"),),
            required=True,
            at_most=1.0,
        ),
        Row(
            q.KV_BLOCKS,
            "max",
            (Alias(Series("sglang:cache_config_info", value_label="num_pages"), "collector of 2026"),),
        ),
        Row(
            q.BLOCK_TOKENS,
            "max",
            (Alias(Series("sglang:cache_config_info", value_label="page_size"), "collector of 2026"),),
        ),
        Row(q.KV_TOKENS, "sum", (Alias(Series("sglang:max_total_num_tokens"), "collector of 2026"),)),
        Row(
            q.CACHE_HITS, "sum", (Alias(Series("sglang:cached_tokens_total"), "production metrics page, tokens"),)
        ),
        Row(
            q.CACHE_QUERIES,
            "sum",
            (Alias(Series("sglang:prompt_tokens_total"), "production metrics page, tokens"),),
        ),
        Row(q.PROMPT_TOKENS, "sum", (Alias(Series("sglang:prompt_tokens_total"), "production metrics page"),)),
        Row(
            q.COMPUTED_PROMPT_TOKENS,
            "sum",
            (Alias(Series("sglang:realtime_tokens_total", (("mode", "prefill_compute"),)), "collector of 2026"),),
        ),
        Row(
            q.GENERATION_TOKENS,
            "sum",
            (Alias(Series("sglang:generation_tokens_total"), "production metrics page"),),
        ),
        Row(q.PREEMPTIONS, "sum", (Alias(Series("sglang:num_retracted_requests_total"), "collector of 2026"),)),
        PROCESS_START,
    ),
)
"""Data-parallel ranks carry ``dp_rank``; ranks of one scheduler differ in ``tp_rank`` or ``pp_rank`` and repeat
each other. With priority scheduling the queue's parts stand beside its total, which has an empty ``priority``."""
