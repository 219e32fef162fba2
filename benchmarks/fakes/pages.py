"""Metrics pages as engines write them: invented numbers under the engines' real metric names."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(slots=True)
class Load:
    """What an engine says of itself; change it and the next page tells."""

    running: float = 0.0
    waiting: float = 0.0
    kv_use: float = 0.0
    prompt_tokens: float = 0.0
    generation_tokens: float = 0.0
    cache_hits: float = 0.0
    cache_queries: float = 0.0
    preemptions: float = 0.0
    started_at_s: float = 1_790_000_000.0
    kv_blocks: int = 1024
    block_tokens: int = 16


HISTOGRAMS = (
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "request_time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_inference_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
    "iteration_tokens_total",
    "request_prefill_kv_computed_tokens",
    "request_num_preemptions",
)


def histograms(prefix: str, labels: str, buckets: int, count: float) -> str:
    """The long part of a page: histograms that no router needs."""
    lines = []
    for name in HISTOGRAMS:
        full = f"{prefix}{name}"
        lines += [f"# HELP {full} Distribution of {name}.", f"# TYPE {full} histogram"]
        lines += [f'{full}_bucket{{{labels},le="{2.0**b / 100:g}"}} {count * b / buckets}' for b in range(buckets)]
        lines += [f'{full}_bucket{{{labels},le="+Inf"}} {count}', f"{full}_count{{{labels}}} {count}"]
        lines += [f"{full}_sum{{{labels}}} {count * 1.5}"]
    return "\n".join(lines) + "\n" if lines else ""


def vllm_page(load: Load, buckets: int = 0) -> bytes:
    """A page of vLLM; with 28 buckets a histogram it has about 45 KB."""
    labels = 'engine="0",model_name="org/model-8b-instruct"'
    gauges = (
        ("num_requests_running", "gauge", load.running),
        ("num_requests_waiting", "gauge", load.waiting),
        ("kv_cache_usage_perc", "gauge", load.kv_use),
        ("prefix_cache_queries_total", "counter", load.cache_queries),
        ("prefix_cache_hits_total", "counter", load.cache_hits),
        ("num_preemptions_total", "counter", load.preemptions),
        ("prompt_tokens_total", "counter", load.prompt_tokens),
        ("generation_tokens_total", "counter", load.generation_tokens),
    )
    text = (
        "# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.\n"
        f"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {load.started_at_s}\n"
    )
    for name, kind, value in gauges:
        text += f"# HELP vllm:{name} {name}.\n# TYPE vllm:{name} {kind}\nvllm:{name}{{{labels}}} {value}\n"
    text += (
        "# HELP vllm:cache_config_info Information of the cache.\n# TYPE vllm:cache_config_info gauge\n"
        f'vllm:cache_config_info{{block_size="{load.block_tokens}",engine="0",gpu_memory_utilization="0.9",'
        f'num_gpu_blocks="{load.kv_blocks}"}} 1.0\n'
    )
    return (text + (histograms("vllm:", labels, buckets, load.prompt_tokens) if buckets else "")).encode()


def sglang_page(load: Load, buckets: int = 0) -> bytes:
    """A page of SGLang."""
    labels = 'engine_type="unified",model_name="model",pp_rank="0",tp_rank="0"'
    text = ""
    for name, value in (
        ("num_running_reqs", load.running),
        ("num_queue_reqs", load.waiting),
        ("token_usage", load.kv_use),
        ("max_total_num_tokens", load.kv_blocks * load.block_tokens),
    ):
        text += f"# HELP sglang:{name} {name}\n# TYPE sglang:{name} gauge\nsglang:{name}{{{labels}}} {value}\n"
    for name, value in (
        ("prompt_tokens_total", load.prompt_tokens),
        ("generation_tokens_total", load.generation_tokens),
        ("num_retracted_requests_total", load.preemptions),
    ):
        text += f'# TYPE sglang:{name} counter\nsglang:{name}{{model_name="model"}} {value}\n'
    text += f'sglang:cached_tokens_total{{cache_source="device",model_name="model"}} {load.cache_hits}\n'
    text += f"process_start_time_seconds {load.started_at_s}\n"
    return (text + (histograms("sglang:", labels, buckets, load.prompt_tokens) if buckets else "")).encode()


def trtllm_page(load: Load, buckets: int = 0) -> bytes:
    """The Prometheus page of TensorRT-LLM's server."""
    labels = 'engine_type="trtllm",model_name="model"'
    values = {
        "num_requests_running": load.running,
        "num_requests_waiting": load.waiting,
        "kv_cache_utilization": load.kv_use,
        "kv_cache_max_blocks": load.kv_blocks,
        "kv_cache_tokens_per_block": load.block_tokens,
        "prompt_cached_tokens_total": load.cache_hits,
        "prompt_tokens_total": load.prompt_tokens,
        "generation_tokens_total": load.generation_tokens,
    }
    text = "".join(f"# TYPE trtllm_{n} gauge\ntrtllm_{n}{{{labels}}} {v}\n" for n, v in values.items())
    text += f"process_start_time_seconds {load.started_at_s}\n"
    return (text + (histograms("trtllm_", labels, buckets, load.prompt_tokens) if buckets else "")).encode()


def trtllm_json_page(load: Load, buckets: int = 0) -> bytes:  # noqa: ARG001
    """Iteration statistics of TensorRT-LLM: the last two steps, newest last."""
    step = {
        "iter": 8,
        "numActiveRequests": load.running,
        "numQueuedRequests": load.waiting,
        "kvCacheStats": {
            "maxNumBlocks": load.kv_blocks,
            "usedNumBlocks": load.kv_use * load.kv_blocks,
            "tokensPerBlock": load.block_tokens,
        },
    }
    return json.dumps([{"iter": 7, "numActiveRequests": 99, "numQueuedRequests": 99}, step]).encode()


def triton_page(load: Load, buckets: int = 0) -> bytes:
    """A page of Triton with the TensorRT-LLM backend."""
    text = "# TYPE nv_trt_llm_request_metrics gauge\n"
    for kind, value in (("waiting", load.waiting), ("context", 0), ("scheduled", load.running), ("max", 512)):
        text += f'nv_trt_llm_request_metrics{{model="tensorrt_llm",request_type="{kind}",version="1"}} {value}\n'
    text += "# TYPE nv_trt_llm_kv_cache_block_metrics gauge\n"
    for kind, number in (
        ("fraction", load.kv_use),
        ("tokens_per", load.block_tokens),
        ("used", load.kv_use * load.kv_blocks),
        ("max", load.kv_blocks),
    ):
        labels = f'kv_cache_block_type="{kind}",model="tensorrt_llm",version="1"'
        text += f"nv_trt_llm_kv_cache_block_metrics{{{labels}}} {number}\n"
    labels = 'model="tensorrt_llm",version="1"'
    return (text + (histograms("nv_", labels, buckets, load.prompt_tokens) if buckets else "")).encode()


PAGES = {
    "vllm": vllm_page,
    "sglang": sglang_page,
    "trtllm": trtllm_page,
    "trtllm-json": trtllm_json_page,
    "triton": triton_page,
}
"""Page of each kind of engine that ``router.engines.registry.ENGINES`` names."""
