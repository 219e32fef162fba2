"""Memory and start-up arithmetic of a replica: KV tokens that fit, seconds from start command to ready."""

from __future__ import annotations

from dataclasses import dataclass

from data.catalog.types import GpuType, ReplicaFacts
from data.errors import SettingError

KV_MEMORY_SHARE = 0.90
"""Share of a GPU's memory that the engine may use; the catalog's KV capacities stand at this share."""


@dataclass(frozen=True, slots=True)
class StartAssumptions:
    """What a start costs beside the model's size. Round numbers of this project, not measurements.

    Attributes:
        disk_gb_per_s: Weights from local disk to the GPUs, whole replica (> 0).
        host_gb_per_s: Weights from host memory to one GPU (> 0); each GPU has its own path.
        engine_start_s: Process start, memory profiling, graph capture (>= 0).
        warm_start_s: The same for a process that is kept alive with its weights in host memory (>= 0).
        activation_reserve_gb: GPU memory for activations, graphs and communication, each GPU (>= 0).
    """

    disk_gb_per_s: float = 3.0
    host_gb_per_s: float = 20.0
    engine_start_s: float = 30.0
    warm_start_s: float = 3.0
    activation_reserve_gb: float = 3.0

    def __post_init__(self) -> None:
        for name in ("disk_gb_per_s", "host_gb_per_s"):
            if not getattr(self, name) > 0:
                raise SettingError("out of range", field=name, value=getattr(self, name), expected="above 0")
        for name in ("engine_start_s", "warm_start_s", "activation_reserve_gb"):
            if not getattr(self, name) >= 0:
                raise SettingError("out of range", field=name, value=getattr(self, name), expected="0 or more")

    def load_s(self, weights_gb: float) -> float:
        """Start from local disk: every byte of the replica is read once."""
        return self.engine_start_s + weights_gb / self.disk_gb_per_s

    def warm_load_s(self, weights_gb: float, tensor_parallel: int) -> float:
        """Start from a prewarmed copy: the GPUs copy their shards at the same time."""
        return self.warm_start_s + weights_gb / (self.host_gb_per_s * tensor_parallel)


def kv_capacity_tokens(
    memory_gb: float,
    weights_gb: float,
    kv_bytes_per_token: float,
    tensor_parallel: int,
    kv_shards: int,
    reserve_gb: float,
    memory_share: float = KV_MEMORY_SHARE,
) -> int:
    """KV tokens one replica holds; 0 or less where the weights leave no room.

    Each GPU has ``memory_share·memory − weights/tp − reserve`` bytes for KV and stores ``1/kv_shards`` of every
    token's entry (``kv_shards`` < tp where there are fewer KV heads than GPUs, 1 for latent attention).
    """
    room = (memory_gb * memory_share - weights_gb / tensor_parallel - reserve_gb) * 1e9
    return int(room // (kv_bytes_per_token / kv_shards))


def kv_tokens_at(facts: ReplicaFacts, gpu: GpuType, memory_share: float) -> int:
    """KV tokens of a replica whose engine may use another share of GPU memory than 0.90; 0 or less = no room.

    Weights and the activation reserve stay, the room for KV changes, the bytes of a token are the same.
    """
    gpus = facts.tensor_parallel
    fixed_gb = facts.weights_gb + gpus * StartAssumptions().activation_reserve_gb
    room_gb = gpus * gpu.memory_gb * KV_MEMORY_SHARE - fixed_gb
    if memory_share == KV_MEMORY_SHARE or room_gb <= 0:
        return facts.kv_capacity_tokens
    return int(facts.kv_capacity_tokens * (gpus * gpu.memory_gb * memory_share - fixed_gb) / room_gb)
