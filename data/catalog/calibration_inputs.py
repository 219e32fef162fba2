"""What the calibration starts from: which GPUs and models, their public sizes, and the relative GPU prices."""

from __future__ import annotations

from dataclasses import dataclass

from data.catalog.link import Shape


@dataclass(frozen=True, slots=True)
class EngineInput:
    """What recorded engines on one GPU type take beyond the steps that the package prices.

    Attributes:
        host_overhead_s: Of every step (>= 0).
        host_source: What it was measured on.
        link_bytes_per_s: Bandwidth (> 0) of the all-reduces that come on top of the package's own, where a replica
            has more than one GPU; see :func:`data.catalog.link.link_times`.
        link_source: What it was measured on.
        link_gpus: The degree at which it was measured.
    """

    host_overhead_s: float
    host_source: str
    link_bytes_per_s: float
    link_source: str
    link_gpus: int


@dataclass(frozen=True, slots=True)
class GpuInput:
    """One GPU type: its catalog name, the system it is called in the performance tables, its relative price.

    ``engine`` is what engines on it took beyond the priced steps, where recorded runs tell.
    """

    name: str
    system: str
    price_per_hour: float
    engine: EngineInput | None = None


@dataclass(frozen=True, slots=True)
class ModelInput:
    """One model: its catalog name, the checkpoint whose shape is priced, and its sizes from its published config.

    Attributes:
        parameters: Weights in the checkpoint, all experts included.
        bytes_per_parameter: 2 for BF16, 1 for FP8.
        kv_bytes_per_token: Keys and values of one token over all layers, whole replica.
        kv_heads: KV heads, over which tensor parallelism shards the KV cache; 1 for latent attention.
        shape: Layers and hidden size, for all-reduces.
        experts: Whether it is a mixture of experts.
        note: What a reader must know about this entry.
    """

    name: str
    checkpoint: str
    parameters: float
    bytes_per_parameter: float
    kv_bytes_per_token: int
    kv_heads: int
    shape: Shape
    experts: bool = False
    note: str = ""


TENSOR_PARALLEL = (1, 2, 4, 8)

RTX_PRO_6000_ENGINE = EngineInput(
    host_overhead_s=0.0025,
    host_source="steps 2.5 ms longer: recorded vLLM 0.19 runs of Llama-3.1-8B on RTX PRO 6000 and RTX 4090",
    link_bytes_per_s=18.6e9,
    link_source="all-reduces slower by 1 s per 18.6 GB: a recorded vLLM 0.19 run of Qwen3-32B on two cards",
    link_gpus=2,
)
"""Fitted to the end-to-end times of three runs (LLMServingSim, ``bench/examples``), see ``docs/fidelity.md``."""

GPUS = (
    GpuInput("A100", "a100_sxm", 1.6),
    GpuInput("H100", "h100_sxm", 2.6),
    GpuInput("H200", "h200_sxm", 3.2),
    GpuInput("B200", "b200_sxm", 4.8),
    GpuInput("L40S", "l40s", 1.0),
    GpuInput("RTX-PRO-6000", "rtx_pro_6000_server", 1.4, RTX_PRO_6000_ENGINE),
    GpuInput("B60", "b60", 0.35),
)


def _kv_bytes(layers: int, kv_heads: int, head_dim: int) -> int:
    """Keys and values of one token at 16 bit: 2 tensors · 2 bytes · layers · heads · head size."""
    return 4 * layers * kv_heads * head_dim


def _latent_kv_bytes(layers: int, latent: int, rope: int, indexer: int) -> int:
    """Latent attention with an 8-bit cache: the latent with a 4-byte scale per 128 values and a 16-bit rotary
    part, plus the sparse-attention indexer's 8-bit key and its scale.
    """
    return layers * (latent + 4 * (latent // 128) + 2 * rope + indexer + 4)


MODELS = (
    ModelInput(
        "llama-3.1-8b", "meta-llama/Meta-Llama-3.1-8B", 8.03e9, 2, _kv_bytes(32, 8, 128), 8, Shape(32, 4096)
    ),
    ModelInput(
        "llama-3.3-70b",
        "meta-llama/Meta-Llama-3.1-70B",
        70.55e9,
        2,
        _kv_bytes(80, 8, 128),
        8,
        Shape(80, 8192),
        note="priced with the shape of Llama-3.1-70B, which is the same",
    ),
    ModelInput("qwen3-32b", "Qwen/Qwen3-32B", 32.76e9, 2, _kv_bytes(64, 8, 128), 8, Shape(64, 5120)),
    ModelInput(
        "qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B", 30.53e9, 2, _kv_bytes(48, 4, 128), 4, Shape(48, 2048), experts=True
    ),
    ModelInput(
        "glm-5-fp8",
        "zai-org/GLM-5-FP8",
        744e9,
        1,
        _latent_kv_bytes(78, 512, 64, 128),
        1,
        Shape(78, 6144),
        experts=True,
        note="attention times come from another engine's tables",
    ),
)
