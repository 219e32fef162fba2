"""Dynamo's radix tree on the same chains; run by an interpreter that has ``ai-dynamo-runtime``, prints JSON.

Reads a JSON object from standard input: ``rows``, ``seed``, ``chains`` (count), ``lengths``.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np


def main() -> None:
    """Store the chains, look them up, print the times."""
    from dynamo.llm import RadixTree  # type: ignore[import-not-found]

    wanted = json.load(sys.stdin)
    rng = np.random.default_rng(wanted["seed"])
    rows, lengths = wanted["rows"], wanted["lengths"]
    tree: Any = RadixTree()
    chains = [rng.integers(1, 2**62, int(rng.choice(lengths))).tolist() for _ in range(wanted["chains"])]
    holders = [rng.choice(rows, int(rng.integers(1, 4)), replace=False).tolist() for _ in chains]
    blocks, spent_s, event_id = 0, 0.0, 0
    for chain, held in zip(chains, holders, strict=True):
        for row in held:
            parent = None
            for start in range(0, len(chain), 16):
                part = chain[start : start + 16]
                stored = [{"block_hash": block, "tokens_hash": block} for block in part]
                event = {"event_id": event_id, "data": {"stored": {"parent_hash": parent, "blocks": stored}}}
                raw = json.dumps(event).encode()
                began_s = time.process_time()
                tree.apply_event(row, raw)
                spent_s += time.process_time() - began_s
                parent, event_id, blocks = part[-1], event_id + 1, blocks + len(part)
    found: dict[str, float] = {"blocks_per_s": blocks / spent_s}
    for length in (8, 128, 2000):
        times = []
        for chain in [chain[:length] for chain in chains if len(chain) >= length][:2000]:
            began_s = time.perf_counter()
            tree.find_matches(chain)
            times.append(time.perf_counter() - began_s)
        if times:
            found[f"lookup_us_{length}"] = float(np.median(times)) * 1e6
    print(json.dumps(found))


if __name__ == "__main__":
    main()
