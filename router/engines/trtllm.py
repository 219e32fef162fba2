"""TensorRT-LLM's metrics: the Prometheus page of ``trtllm-serve``, and its JSON iteration statistics."""

from __future__ import annotations

from router.engines import aliases as q
from router.engines.aliases import Alias, EngineAdapter, Row, Series
from router.engines.process import PROCESS_START

_SOURCE = "nvidia.github.io/TensorRT-LLM examples and the server's metrics collector, read November 2026"


def _row(quantity: str, combine: q.Combine, name: str, versions: str, **more: bool) -> Row:
    return Row(quantity, combine, (Alias(Series(name), versions),), **more)


TRTLLM = EngineAdapter(
    kind="trtllm",
    path="/prometheus/metrics",
    form="text",
    source=_SOURCE,
    rows=(
        _row(q.RUNNING, "sum", "trtllm_num_requests_running", "collector of 2026", required=True),
        _row(q.WAITING, "sum", "trtllm_num_requests_waiting", "collector of 2026", required=True),
        Row(
            q.KV_USE,
            "max",
            (
                Alias(Series("trtllm_kv_cache_utilization"), "1.1.0rc5 and later"),
                Alias(
                    Series("trtllm_kv_cache_used_blocks"),
                    "collector of 2026",
                    over=Series("trtllm_kv_cache_max_blocks"),
                ),
            ),
            required=True,
            at_most=1.0,
        ),
        _row(q.KV_BLOCKS, "max", "trtllm_kv_cache_max_blocks", "collector of 2026"),
        _row(q.BLOCK_TOKENS, "max", "trtllm_kv_cache_tokens_per_block", "collector of 2026"),
        _row(q.CACHE_HITS, "sum", "trtllm_prompt_cached_tokens_total", "collector of 2026, tokens"),
        _row(q.CACHE_QUERIES, "sum", "trtllm_prompt_tokens_total", "collector of 2026, tokens"),
        _row(q.PROMPT_TOKENS, "sum", "trtllm_prompt_tokens_total", "collector of 2026"),
        _row(q.GENERATION_TOKENS, "sum", "trtllm_generation_tokens_total", "collector of 2026"),
        PROCESS_START,
    ),
)
"""The Prometheus page: needs ``return_perf_metrics: true`` in the server's options."""

TRTLLM_JSON = EngineAdapter(
    kind="trtllm-json",
    path="/metrics",
    form="json",
    source=_SOURCE,
    rows=(
        _row(q.RUNNING, "sum", "numActiveRequests", "iteration statistics", required=True),
        _row(q.WAITING, "sum", "numQueuedRequests", "iteration statistics", required=True),
        Row(
            q.KV_USE,
            "max",
            (
                Alias(
                    Series("kvCacheStats.usedNumBlocks"),
                    "iteration statistics",
                    over=Series("kvCacheStats.maxNumBlocks"),
                ),
            ),
            required=True,
            at_most=1.0,
        ),
        _row(q.KV_BLOCKS, "max", "kvCacheStats.maxNumBlocks", "iteration statistics"),
        _row(q.BLOCK_TOKENS, "max", "kvCacheStats.tokensPerBlock", "iteration statistics"),
    ),
)
"""The iteration statistics: needs ``enable_iter_perf_stats: true``. Reading takes them away, so only one reader
may ask, and an engine that ran no step since gives an empty list, which says nothing."""
