"""Metrics of Triton Inference Server with the TensorRT-LLM backend (port 8002 by default)."""

from __future__ import annotations

from router.engines import aliases as q
from router.engines.aliases import Alias, EngineAdapter, Row, Series

_REQUESTS = "nv_trt_llm_request_metrics"
_KV = "nv_trt_llm_kv_cache_block_metrics"


def _requests(kind: str) -> Series:
    return Series(_REQUESTS, (("request_type", kind),))


def _kv(kind: str) -> Series:
    return Series(_KV, (("kv_cache_block_type", kind),))


TRITON = EngineAdapter(
    kind="triton",
    path="/metrics",
    form="text",
    source="documentation of the Triton TensorRT-LLM backend, read November 2026",
    rows=(
        Row(q.RUNNING, "sum", (Alias(_requests("scheduled"), "23.11 and later"),), required=True),
        Row(q.WAITING, "sum", (Alias(_requests("waiting"), "later than 23.11"),), required=True),
        Row(
            q.KV_USE,
            "max",
            (
                Alias(_kv("fraction"), "later than 23.11"),
                Alias(_kv("used"), "23.11 and later", over=_kv("max")),
            ),
            required=True,
            at_most=1.0,
        ),
        Row(q.KV_BLOCKS, "max", (Alias(_kv("max"), "23.11 and later"),)),
        Row(q.BLOCK_TOKENS, "max", (Alias(_kv("tokens_per"), "23.11 and later"),)),
    ),
)
"""One page may tell several models; an endpoint of ours is one engine, so its page must have one model only. There
are no token counters: a restart shows only by the endpoint's identity."""
