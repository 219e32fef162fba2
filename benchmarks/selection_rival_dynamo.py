"""Dynamo's SelectionService on the same fleet and requests; run by an interpreter that has ``ai-dynamo-runtime``.

Reads a JSON object from standard input and prints one: ``workers``, ``block_tokens``, ``capacity_blocks``,
``batch_tokens``, ``held`` (token ids of the prompt that worker i mod ``workers`` has cached and is serving) and
``asked`` (token ids of the requests). Workers are addresses that nobody listens on: only their events are real.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

MODEL = "m"
VISIBLE_S = 60.0


class Fleet:
    """Workers that publish what they hold."""

    def __init__(self, service: Any, wanted: dict[str, Any]) -> None:
        self.service = service
        self.workers: int = wanted["workers"]
        self.block_tokens: int = wanted["block_tokens"]
        self._capacity: int = wanted["capacity_blocks"]
        self._batch: int = wanted["batch_tokens"]
        self._publishers: list[Any] = []
        self._sequences = [0] * self.workers

    async def start(self) -> None:
        """Register every worker with an event socket of its own."""
        import zmq

        context: Any = zmq.Context.instance()
        for worker in range(self.workers):
            publisher = context.socket(zmq.PUB)
            port = publisher.bind_to_random_port("tcp://127.0.0.1")
            self._publishers.append(publisher)
            await self.service.upsert_worker(
                {
                    "worker_id": worker,
                    "model_name": MODEL,
                    "endpoint": f"http://127.0.0.1:{10_000 + worker}",
                    "block_size": self.block_tokens,
                    "data_parallel_start_rank": 0,
                    "data_parallel_size": 1,
                    "kv_events_endpoints": {0: f"tcp://127.0.0.1:{port}"},
                    "total_kv_blocks": self._capacity,
                    "max_num_batched_tokens": self._batch,
                }
            )

    def publish(self, worker: int, tokens: list[int]) -> None:
        """Tell that a worker has stored a prompt. Equal prefixes have equal hashes, as in an engine."""
        import msgspec

        size, hashes = self.block_tokens, list[int]()
        for start in range(0, len(tokens) - size + 1, size):
            parent = hashes[-1] if hashes else 0
            hashes.append(hash((parent, tuple(tokens[start : start + size]))) % (1 << 62))
        stored = ["BlockStored", hashes, None, tokens[: len(hashes) * size], size, None]
        batch = [time.time(), [stored], 0]
        number = self._sequences[worker]
        self._sequences[worker] += 1
        self._publishers[worker].send_multipart([b"", number.to_bytes(8, "big"), msgspec.msgpack.encode(batch)])

    async def hold(self, prompts: list[list[int]]) -> None:
        """Every prompt is cached at its worker, and one request for it is being served there."""
        for number, tokens in enumerate(prompts):
            worker = number % self.workers
            self.publish(worker, tokens)
            booked = {"selection_id": f"held-{number}", "worker_id": worker, **question(tokens)}
            await self.service.create_reservation(booked)
        # Subscriptions join late: what was sent before is published again until it shows.
        until_s = time.monotonic() + VISIBLE_S
        missing = dict(enumerate(prompts))
        while missing and time.monotonic() < until_s:
            await asyncio.sleep(0.2)
            for number, tokens in list(missing.items()):
                if await self._holds(number % self.workers, tokens):
                    del missing[number]
                else:
                    self.publish(number % self.workers, tokens)
        if missing:
            raise RuntimeError(f"{len(missing)} stored prompts never showed in the index")

    async def _holds(self, worker: int, tokens: list[int]) -> bool:
        found = await self.service.overlap_scores(question(tokens))
        blocks = {each["worker_id"]: each["device_blocks"] for each in found["workers"]}
        return bool(blocks.get(worker, 0) >= len(tokens) // self.block_tokens)


def question(tokens: list[int]) -> dict[str, Any]:
    """A request with its token ids."""
    return {"model_name": MODEL, "token_ids": tokens}


async def hashed(service: Any, tokens: list[int], block_tokens: int, number: int) -> dict[str, Any]:
    """The same request with hashes instead, which the service computes itself."""
    from dynamo.llm import compute_block_hash_for_seq  # type: ignore[import-not-found]

    name = f"hash-{number}"
    booked = await service.select_and_reserve({"selection_id": name, **question(tokens)})
    await service.free_reservation(name)
    return {
        "model_name": MODEL,
        # The service takes them as signed numbers.
        "block_hashes": [
            block - (1 << 64) if block >> 63 else block
            for block in compute_block_hash_for_seq(tokens, block_tokens)
        ],
        "sequence_hashes": booked["sequence_hashes"],
        "isl_tokens": len(tokens),
    }


async def measured(service: Any, questions: list[dict[str, Any]], form: str) -> dict[str, float]:
    """Times of single selections, and how many full lifecycles a second there are."""
    select_s: list[float] = []
    for asked in questions:
        began_s = time.perf_counter()
        await service.select(asked)
        select_s.append(time.perf_counter() - began_s)
    reserve_s: list[float] = []
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    for number, asked in enumerate(questions):
        name = f"{form}-{number}"
        began_s = time.perf_counter()
        await service.select_and_reserve({"selection_id": name, **asked})
        reserve_s.append(time.perf_counter() - began_s)
        await service.prefill_complete(name)
        await service.free_reservation(name)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    count = len(questions)
    return {
        "select_p50_us": quantile_us(select_s, 0.5),
        "select_p99_us": quantile_us(select_s, 0.99),
        "reserve_p50_us": quantile_us(reserve_s, 0.5),
        "reserve_p99_us": quantile_us(reserve_s, 0.99),
        "lifecycles_per_s": count / wall_s,
        "lifecycles_per_core_s": count / cpu_s,
    }


def quantile_us(times_s: list[float], share: float) -> float:
    """A quantile in microseconds, after the first tenth as warm-up."""
    kept = sorted(times_s[len(times_s) // 10 :])
    return 1e6 * kept[min(int(share * len(kept)), len(kept) - 1)]


async def run(wanted: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Measure both forms of the requests."""
    from dynamo.llm import SelectionService

    service = SelectionService()
    fleet = Fleet(service, wanted)
    await fleet.start()
    await fleet.hold(wanted["held"])
    tokens = [question(asked) for asked in wanted["asked"]]
    hashes = [
        await hashed(service, asked, fleet.block_tokens, number) for number, asked in enumerate(wanted["asked"])
    ]
    found = {
        "hashes": await measured(service, hashes, "hashes"),
        "tokens": await measured(service, tokens, "tokens"),
    }
    service.shutdown()
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(json.load(sys.stdin)))))
