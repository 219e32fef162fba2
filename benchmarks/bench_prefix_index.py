"""The prefix index: lookups, updates, memory, pauses, and the hashing of prompts.

Updates are in processor time of one core, lookups are medians. Set ``TOKENFLEET_DYNAMO_PYTHON`` to an interpreter
with ``ai-dynamo-runtime`` to have its radix tree measured beside ours.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from router.prefix import EventPrefixIndex
from router.prefix.aliases import Aliases
from router.prefix.index import PrefixIndex, PrefixIndexSettings
from router.prefix.lru import LruBlocks
from router.prefix.slots import UInt64Array
from router.prefix.warm_up import warm_up
from router.prompts.block_hashes import hash_tokens
from router.prompts.prefix_scope import Scope

Row = dict[str, Any]
LENGTHS = (8, 64, 128, 512, 2000)
SYSTEM_BLOCKS, SYSTEMS = 64, 200
TARGET_US = {8: 3.0, 128: 5.0, 2000: 15.0}
FLEETS = ((64, 100_000), (1024, 4_000), (4096, 1_000))
"""Endpoints and blocks of each."""


def rows(quick: bool) -> list[Row]:
    """Rows of the result table."""
    warm_up()
    found: list[Row] = []
    for endpoints, blocks in FLEETS:
        found += _fleet(endpoints, blocks, 1000 if quick else 5000)
    found += _growth()
    found += _memory_apart()
    found += _approximate()
    found += _dictionary(1000)
    found += _hashing()
    found += _dynamo(quick)
    return found


def measured(
    name: str, value: float, unit: str, target: float | None = None, least: bool = False, note: str = "-"
) -> Row:
    """One measured value; ``least`` says that the target is a lower bound."""
    met = None if target is None else bool(value >= target if least else value <= target)
    return {
        "id": f"prefix.{name}",
        "area": "prefix index",
        "value": value,
        "unit": unit,
        "reference": note,
        "ratio": None if target is None else value / target,
        "target": None if target is None else f"{'>=' if least else '<='} {target:g}",
        "met": met,
    }


def _chains(rng: np.random.Generator) -> Iterator[UInt64Array]:
    """Prompts: one of the system prompts, then blocks of their own."""
    systems = [random(rng, SYSTEM_BLOCKS) for _ in range(SYSTEMS)]
    while True:
        yield np.concatenate([systems[int(rng.integers(SYSTEMS))], random(rng, int(rng.choice(LENGTHS)))])


def random(rng: np.random.Generator, blocks: int) -> UInt64Array:
    return rng.integers(1, 2**63, blocks, dtype=np.uint64)


def _filled(endpoints: int, blocks: int) -> tuple[PrefixIndex, list[UInt64Array]]:
    """Every endpoint full; each chain is held by one to three of them."""
    rng = np.random.default_rng(0)
    index = PrefixIndex(endpoints, PrefixIndexSettings(1 << 31, endpoints * blocks))
    made, kept, row = _chains(rng), list[UInt64Array](), 0
    while row < endpoints:
        chain = next(made)
        kept.append(chain)
        for holder in {row, *rng.integers(0, endpoints, int(rng.integers(0, 3))).tolist()}:
            room = blocks - index.resident(holder)
            index.stored(holder, chain[: max(room, 0)])
        while row < endpoints and index.resident(row) >= blocks:
            row += 1
    return index, kept


def _fleet(endpoints: int, blocks: int, count: int) -> Iterator[Row]:
    rng = np.random.default_rng(1)
    before = _resident_bytes()
    index, kept = _filled(endpoints, blocks)
    used = _resident_bytes() - before
    for length, target in TARGET_US.items():
        found = [chain[:length].copy() for chain in kept if len(chain) >= length]
        asked = [found[i] for i in rng.integers(0, len(found), count)]
        half = [np.concatenate([chain[: length // 2], random(rng, length - length // 2)]) for chain in asked]
        for kind, prompts in (("full", asked), ("half", half)):
            us = median_us(lambda i, prompts=prompts: index.matched_blocks(prompts[i].view()), count)
            yield measured(f"lookup_us.{endpoints}.{length}.{kind}", us, "us", target if endpoints == 64 else None)
    note = f"{endpoints} x {blocks} blocks, {len(index)} entries; grown by {used / 1e6:.0f} MB in the process"
    yield measured(
        f"memory_mb.{endpoints}", index.memory_bytes() / 1e6, "MB", 200.0 if endpoints == 64 else None, note=note
    )
    began_s = time.perf_counter()
    index.cleared(0)
    yield measured(f"clear_us.{endpoints}", 1e6 * (time.perf_counter() - began_s), "us", 2000.0)


def median_us(call: Callable[[int], object], count: int) -> float:
    times = []
    for i in range(count):
        began_s = time.perf_counter()
        call(i)
        times.append(time.perf_counter() - began_s)
    return float(np.median(times[count // 10 :])) * 1e6


def _resident_bytes() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _growth() -> Iterator[Row]:
    """Longest single store while an index grows from nothing to 4 million entries."""
    rng = np.random.default_rng(2)
    index, spent_s, worst_s = PrefixIndex(64, PrefixIndexSettings(1 << 31)), 0.0, 0.0
    for turn in range(40_000):
        blocks = random(rng, 100)
        began_s = time.process_time()
        index.stored(turn % 64, blocks)
        took_s = time.process_time() - began_s
        spent_s += took_s
        worst_s = max(worst_s, took_s)
    yield measured(
        "growth_pause_ms", 1e3 * worst_s, "ms", 20.0, note="longest store of 100 blocks, processor time"
    )
    yield measured("store_blocks_per_s", len(index) / spent_s, "blocks/s", 1e6, least=True, note="growth included")
    index.cleared(0)
    worst_s = 0.0
    while index.upkeep():
        began_s = time.process_time()
        index.upkeep(1 << 16)
        worst_s = max(worst_s, time.process_time() - began_s)
    yield measured("sweep_slice_ms", 1e3 * worst_s, "ms", 2.0, note="65,536 slots, processor time")


def _memory_apart() -> Iterator[Row]:
    """What one endpoint of 100,000 blocks needs beside the table, times 64."""
    rng = np.random.default_rng(7)
    aliases, lru = Aliases(), LruBlocks(100_000)
    for _ in range(1000):
        aliases.load(random(rng, 100), random(rng, 100))
        lru.touch(random(rng, 100))
    note = "64 x 100000 blocks, beside the table"
    yield measured("engine_hashes_mb.64", 64 * aliases.memory_bytes() / 1e6, "MB", note=note)
    yield measured("recency_mb.64", 64 * lru.memory_bytes() / 1e6, "MB", note=note)


def _approximate() -> Iterator[Row]:
    rng = np.random.default_rng(4)
    index = PrefixIndex(64, PrefixIndexSettings(1 << 31))
    for row in range(64):
        index.set_capacity(row, 10_000)
    prompts = [random(rng, 128) for _ in range(10_000)]
    began_s = time.process_time()
    for i, prompt in enumerate(prompts):
        index.sent(i % 64, prompt)
    us = 1e6 * (time.process_time() - began_s) / len(prompts)
    yield measured("approximate_sent_us.128", us, "us", note="128 blocks, evictions included")
    held = sum(index.resident(row) for row in range(64))
    yield measured("approximate_bytes_per_block", index.memory_bytes() / held, "bytes", note="table and recency")


def _dictionary(count: int) -> Iterator[Row]:
    """The dictionary form beside the compiled one, at the simulator's size: 64 endpoints, 30 blocks."""
    rng = np.random.default_rng(5)
    prompts = [tuple(random(rng, 30).tolist()) for _ in range(count)]
    for name, index in (("dict", EventPrefixIndex(64)), ("compiled", PrefixIndex(64))):
        stored = median_us(lambda i, index=index: index.stored(i % 64, prompts[i][:4]), count)
        for i, prompt in enumerate(prompts):
            index.stored(i % 64, prompt)
        looked = median_us(lambda i, index=index: index.matched_blocks(prompts[i]), count)
        yield measured(f"small.{name}.store_4_us", stored, "us")
        yield measured(f"small.{name}.lookup_30_us", looked, "us", note="hashes as a tuple of int")


def _hashing() -> Iterator[Row]:
    rng, scope = np.random.default_rng(6), Scope("m@1")
    for tokens in (2048, 32_768):
        ids = rng.integers(0, 150_000, tokens).tolist()
        array = np.array(ids, dtype=np.uint32)
        yield measured(f"hash_us.{tokens}.list", median_us(lambda _, ids=ids: hash_tokens(ids, scope), 300), "us")
        yield measured(
            f"hash_us.{tokens}.array",
            median_us(lambda _, ids=array: hash_tokens(ids, scope), 300),
            "us",  # type: ignore[arg-type]
        )


def _dynamo(quick: bool) -> Iterator[Row]:
    python = os.environ.get("TOKENFLEET_DYNAMO_PYTHON")
    if not python:
        yield measured("dynamo.skipped", 0.0, "-", note="TOKENFLEET_DYNAMO_PYTHON is not set")
        return
    wanted = {"rows": 64, "seed": 0, "chains": 300 if quick else 2000, "lengths": LENGTHS}
    script = Path(__file__).with_name("prefix_rival_dynamo.py")
    environment = {**os.environ, "DYN_LOG": "error"}
    ran = subprocess.run(
        [python, str(script)],
        input=json.dumps(wanted),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if ran.returncode:
        yield measured("dynamo.failed", float(ran.returncode), "exit code", note=ran.stderr.strip()[-200:])
        return
    note = f"radix tree of ai-dynamo-runtime, 64 workers, {wanted['chains']} chains: a smaller tree than ours"
    for name, value in json.loads(ran.stdout.splitlines()[-1]).items():
        unit = "blocks/s" if name.startswith("blocks") else "us"
        yield measured(f"dynamo.{name}", value, unit, note=note)
