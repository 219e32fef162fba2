"""vLLM's metrics (``/metrics`` of the OpenAI-compatible server)."""

from __future__ import annotations

from router.engines import aliases as q
from router.engines.aliases import Alias, EngineAdapter, Row, Series
from router.engines.process import PROCESS_START

_BLOCKS = Series("vllm:cache_config_info", value_label="num_gpu_blocks")
_BLOCK_TOKENS = Series("vllm:cache_config_info", value_label="block_size")

VLLM = EngineAdapter(
    kind="vllm",
    path="/metrics",
    form="text",
    source="docs.vllm.ai usage/metrics and pages of a 0.32.0 engine, read November 2026",
    rows=(
        Row(q.RUNNING, "sum", (Alias(Series("vllm:num_requests_running"), "0.4 to 0.32"),), required=True),
        Row(q.WAITING, "sum", (Alias(Series("vllm:num_requests_waiting"), "0.4 to 0.32"),), required=True),
        Row(
            q.KV_USE,
            "max",
            (
                Alias(Series("vllm:kv_cache_usage_perc"), "0.32"),
                Alias(Series("vllm:gpu_cache_usage_perc"), "0.4 to 0.8; gone in 0.32"),
            ),
            required=True,
            at_most=1.0,
        ),
        Row(q.KV_BLOCKS, "max", (Alias(_BLOCKS, "0.5 to 0.32"),)),
        Row(q.BLOCK_TOKENS, "max", (Alias(_BLOCK_TOKENS, "0.5 to 0.32"),)),
        Row(
            q.KV_TOKENS,
            "sum",
            (Alias(Series("vllm:cache_config_info", value_label="kv_cache_size_tokens"), "0.32"),),
        ),
        Row(
            q.CACHE_HITS,
            "sum",
            (
                Alias(Series("vllm:prefix_cache_hits_total"), "0.32, tokens"),
                Alias(Series("vllm:gpu_prefix_cache_hits_total"), "0.8, blocks"),
            ),
        ),
        Row(
            q.CACHE_QUERIES,
            "sum",
            (
                Alias(Series("vllm:prefix_cache_queries_total"), "0.32, tokens"),
                Alias(Series("vllm:gpu_prefix_cache_queries_total"), "0.8, blocks"),
            ),
        ),
        Row(q.PROMPT_TOKENS, "sum", (Alias(Series("vllm:prompt_tokens_total"), "0.4 to 0.32"),)),
        Row(
            q.COMPUTED_PROMPT_TOKENS,
            "sum",
            (Alias(Series("vllm:prompt_tokens_by_source_total", (("source", "local_compute"),)), "0.32"),),
        ),
        Row(q.GENERATION_TOKENS, "sum", (Alias(Series("vllm:generation_tokens_total"), "0.4 to 0.32"),)),
        Row(q.PREEMPTIONS, "sum", (Alias(Series("vllm:num_preemptions_total"), "0.4 to 0.32"),)),
        PROCESS_START,
    ),
)
"""Data-parallel ranks carry the label ``engine``. KV use counts blocks of live requests only, so it says nothing
about how full the prefix cache is."""
