"""How the fleet file is written: document keys, hard ranges and plausible ranges of every number.

A *plausible range* is a guard against a slip of unit (milliseconds typed into a field of seconds). Values
outside are refused unless the file says ``allow_implausible: true``.
"""

from __future__ import annotations

from data.fleet.addresses import HTTP_PATTERN, HTTP_TEXT, PATH_PATTERN, PATH_TEXT, ZMQ_PATTERN, ZMQ_TEXT
from data.fleet.types import (
    ClassMatch,
    Endpoint,
    EngineSettings,
    Fleet,
    GpuPool,
    Link,
    Model,
    Placed,
    ReplicaConfig,
    Reservation,
    Site,
    Tenant,
    WorkloadClass,
)
from data.strict.rules import NAME, Rule, RuleBook
from data.types import Slo

_COUNT = Rule(minimum=0, maximum=1_000_000)
_AT_LEAST_ONE = Rule(minimum=1, maximum=1_000_000)
_TOKENS = Rule(minimum=1, maximum=100_000_000)
_WEIGHT = Rule(minimum=0, above=True, plausible=(1e-3, 1e4))
_RATE = Rule(minimum=0, above=True, plausible=(1e-3, 1e9))

FLEET_BOOK = RuleBook(
    annotations=True,
    keys={Fleet: {"pools": "gpu_pools"}},
    absent={Fleet: {"links": ()}},
    rules={
        Fleet: {"name": NAME},
        Site: {
            "name": NAME,
            "zone": NAME,
            "power_kw": Rule(minimum=0, above=True, plausible=(0.1, 1e6)),
            "ingress_tokens_per_s": _RATE,
            "host_memory_gb": Rule(minimum=0, above=True, plausible=(1, 1e7)),
            "start_budget_gpus": _COUNT,
        },
        Link: {
            "rtt_s": Rule(minimum=0, plausible=(1e-6, 2)),
            "bandwidth_gbps": Rule(minimum=0, above=True, plausible=(1e-2, 1e5)),
            "price_per_gb": Rule(minimum=0, plausible=(1e-5, 100)),
        },
        GpuPool: {"count": _COUNT, "reserved_gpus": _COUNT},
        EngineSettings: {
            "max_num_batched_tokens": Rule(minimum=16, maximum=1_000_000),
            "max_num_seqs": Rule(minimum=1, maximum=65_536),
            "block_tokens": Rule(minimum=1, maximum=4096),
            "gpu_memory_utilization": Rule(minimum=0.1, maximum=1.0),
        },
        Model: {
            "name": NAME,
            "version": NAME,
            "context_limit_tokens": _TOKENS,
            "token_value": Rule(minimum=0, above=True, plausible=(1e-6, 1e6)),
        },
        ReplicaConfig: {
            "name": NAME,
            "tensor_parallel": Rule(minimum=1, maximum=64),
            "load_ceiling": Rule(minimum=0, maximum=1, above=True, plausible=(0.05, 1)),
        },
        Slo: {
            "ttft_s": Rule(minimum=0, above=True, plausible=(0.005, 600)),
            "tpot_s": Rule(minimum=0, above=True, plausible=(0.0005, 5)),
            "deadline_s": Rule(minimum=0, above=True, plausible=(0.1, 2_592_000)),
        },
        WorkloadClass: {
            "name": NAME,
            "weight": _WEIGHT,
            "expected_input_tokens": _TOKENS,
            "expected_output_tokens": _TOKENS,
            "client_timeout_s": Rule(minimum=0, above=True, plausible=(0.05, 2_592_000)),
            "queue_ttl_s": Rule(minimum=0, above=True, plausible=(0.05, 2_592_000)),
            "floor_share": Rule(minimum=0, maximum=0.5),
        },
        ClassMatch: {
            "min_input_tokens": _TOKENS,
            "max_input_tokens": _TOKENS,
            "max_output_budget": _TOKENS,
        },
        Reservation: {"replicas": _COUNT, "tokens_per_s": Rule(minimum=0, plausible=(1e-3, 1e9))},
        Tenant: {
            "name": NAME,
            "weight": _WEIGHT,
            "tokens_per_s_budget": _RATE,
            "requests_per_s_budget": Rule(minimum=0, above=True, plausible=(1e-4, 1e7)),
            "concurrent_budget": _AT_LEAST_ONE,
        },
        Placed: {"replicas": _COUNT, "prewarmed": _COUNT},
        Endpoint: {
            "id": NAME,
            "address": Rule(pattern=HTTP_PATTERN, text=HTTP_TEXT),
            "metrics_address": Rule(pattern=HTTP_PATTERN, text=HTTP_TEXT),
            "metrics_path": Rule(pattern=PATH_PATTERN, text=PATH_TEXT),
            "kv_events": Rule(pattern=ZMQ_PATTERN, text=ZMQ_TEXT),
            "kv_replay": Rule(pattern=ZMQ_PATTERN, text=ZMQ_TEXT),
            "served_model": Rule(pattern=r"\S+", text="a name without spaces"),
        },
    },
)
"""Rules of every class that a fleet file is made of."""
