"""TensorRT-LLM's KV-cache events (JSON, polled) in the shape of the others.

An element is ``{"event_id": n, "data": {"type": …}}``; ``stored`` has ``parent_hash`` and ``blocks``, each with
``block_hash``, ``tokens``, ``lora_id`` and ``cache_level`` (0 = GPU memory); ``removed`` has ``block_hashes``;
``updated`` says that a block moved between levels; ``created`` opens the log.
"""

from __future__ import annotations

from typing import Any

import msgspec

from router.kv_events.decode import BAD_PAYLOAD, Batch
from router.kv_events.messages import Event, MapRemoved, MapStored


class TrtllmEvents(msgspec.Struct):
    """Events of one poll and the number of the last one (-1 = none)."""

    batch: Batch
    last_event_id: int


def decode_trtllm(body: bytes, polled_at_s: float) -> TrtllmEvents | None:
    """What one poll returned; ``None`` if it is no list of events. Never raises.

    Args:
        body: JSON array.
        polled_at_s: Stands for the time of the events, which carry none (Unix seconds).
    """
    try:
        items = msgspec.json.decode(body, type=list[Any])
    except BAD_PAYLOAD:
        return None
    batch, events, last = Batch(polled_at_s, 0), list[Event](), -1
    for item in items:
        try:
            last = max(last, int(item["event_id"]))
            events += _events(item["data"])
        except (KeyError, AttributeError, *BAD_PAYLOAD):
            batch.malformed += 1
    batch.events = events
    return TrtllmEvents(batch, last)


def _events(data: dict[str, Any]) -> list[Event]:
    kind = data["type"]
    if kind == "created":
        return []
    if kind == "removed":
        return [MapRemoved([int(block) for block in data["block_hashes"]], "GPU")]
    if kind == "updated":
        level = data.get("cache_level")
        # A block that comes back to the GPU does not say what stands before it: it counts when stored again.
        moved_out = level is not None and level["new_value"] != 0
        return [MapRemoved([int(data["block_hash"])], "GPU")] if moved_out else []
    if kind != "stored":
        raise ValueError(kind)
    return _stored(data)


def _stored(data: dict[str, Any]) -> list[Event]:
    parent, events = data.get("parent_hash"), list[Event]()
    for block in data["blocks"]:
        tokens = [int(token["token_id"]) for token in block["tokens"]]
        number = int(block["block_hash"])
        events.append(
            MapStored(
                [number],
                None if parent is None else int(parent),
                tokens,
                len(tokens),
                lora_id=block.get("lora_id") or None,
                medium="GPU" if block.get("cache_level", 0) == 0 else "CPU",
            )
        )
        parent = number
    return events
