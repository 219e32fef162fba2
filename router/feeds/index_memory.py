"""How large the prefix index of a list of endpoints can become, told before it is built."""

from __future__ import annotations

from collections.abc import Sequence

from data.fleet.types import Fleet
from router.prefix.memory import MemoryEstimate, Mode, check_memory
from router.serving.fleet_rows import LiveEndpoint


def check_index_memory(
    endpoints: Sequence[LiveEndpoint], fleet: Fleet, max_bytes: int
) -> tuple[MemoryEstimate | None, tuple[str, ...]]:
    """An upper bound of the index's memory and warnings about it; no bound where there is no endpoint.

    All endpoints count with their mean capacity, the smallest block and the costliest kind of source among them.

    Raises:
        SettingError: The bound is above ``max_bytes``; the message holds the least block size that fits.
    """
    if not endpoints:
        return None, ()
    engine_hashes = {model.key for model in fleet.models if model.engine.block_hashes == "engine"}
    total = sum(endpoint.spec.kv_capacity_tokens for endpoint in endpoints)
    mean = -(-total // len(endpoints))
    block_tokens = min(endpoint.spec.prefix_block_tokens for endpoint in endpoints)
    modes = sorted({_mode(endpoint, engine_hashes) for endpoint in endpoints})
    bounds = [check_memory(len(endpoints), mean, block_tokens, max_bytes, mode) for mode in modes]
    return max(bounds, key=lambda bound: bound[0].total_bytes)


def _mode(endpoint: LiveEndpoint, engine_hashes: set[str]) -> Mode:
    if not endpoint.kv_events:
        return "approximate"
    return "engine" if endpoint.spec.model in engine_hashes else "tokens"
