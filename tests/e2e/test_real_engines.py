"""Two real vLLM engines behind a real router process: events, metrics, hits, a crash and a drain.

Runs if ``TOKENFLEET_VLLM_PYTHON`` names an interpreter with vLLM for CPU; docs/router-benchmarks.md tells how one
is made. The model is a tiny random one, so times say nothing about real ones; all else is the real thing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.tiny_model import WORDS, write_tiny_model
from benchmarks.vllm_engine import BLOCK_TOKENS, NAME, PYTHON, VllmEngine
from router.client import Query, Refusal, RouterClient

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="TOKENFLEET_VLLM_PYTHON is not set"),
]

MODEL = "tiny@1"
OUTPUT_TOKENS = 4
PATIENCE_S = 60.0
FLEET = """\
name: real
sites:
  - {{name: here, role: compute, zone: z}}
gpu_pools:
  - {{site: here, gpu_type: L40S, count: 2}}
models:
  - name: tiny
    version: '1'
    catalog: llama-3.1-8b
    context_limit_tokens: 8192
    engine: {{block_tokens: {block}, max_num_seqs: 16, max_num_batched_tokens: 2048}}
configs:
  - {{name: one, model: tiny@1, gpu_type: L40S, tensor_parallel: 1}}
classes:
  - {{name: interactive, slo: {{ttft_s: 5.0, tpot_s: 0.5}}}}
tenants:
  - {{name: shop}}
  - {{name: bank}}
endpoints:
{endpoints}
"""
ENDPOINT = (
    "  - {{id: {id}, site: here, config: one, address: '{at}', kv_events: '{events}', kv_replay: '{replay}'}}"
)
# Two engines share two cores with the test itself: answers may take long without anything being wrong.
SETTINGS = "health: {least_patience_s: 20.0}\nscrape: {deadline_s: 5.0}\nreports: {stale_after_s: 2.0}\n"


@dataclass(frozen=True)
class Served:
    """One answered request."""

    endpoint_id: str
    prompt: tuple[int, ...]
    tenant: str
    predicted: int
    cached: int


@dataclass
class World:
    """The engines by endpoint id, and the router process."""

    engines: dict[str, VllmEngine]
    router: subprocess.Popen[str]
    address: str
    page: str
    client: RouterClient

    def metric(self, name: str, **labels: str) -> float:
        """Sum of the samples of a metric that have these labels."""
        with urllib.request.urlopen(self.page, timeout=10) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == f"tokenfleet_router_{name}" and labels.items() <= sample.labels.items()
        )

    def hits(self, prompt: tuple[int, ...], tenant: str) -> dict[str, int]:
        """What the router says each endpoint holds of a prompt."""
        found = self.client.explain(query(prompt, tenant), deadline_s=30.0).candidates
        return {candidate.endpoint_id: candidate.hit_tokens for candidate in found}

    def serve(self, prompt: tuple[int, ...], tenant: str, at: str = "") -> Served:
        """Ask the router, send to the engine, report what the engine says; ``at`` = the only endpoint to use."""
        avoid = tuple(name for name in self.engines if at and name != at)
        asked = replace(query(prompt, tenant), avoid_endpoints=avoid)
        with self.client.route(asked, deadline_s=30.0) as attempt:
            placed = attempt.placement
            usage = post(placed.address, prompt, placed.cache_salt)
            cached = int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
            attempt.finish(int(usage["completion_tokens"]), cached_tokens=cached)
        return Served(placed.endpoint_id, prompt, tenant, placed.predicted_hit_tokens, cached)


def query(prompt: tuple[int, ...], tenant: str) -> Query:
    """The question for a prompt."""
    return Query(MODEL, token_ids=prompt, output_budget=OUTPUT_TOKENS, tenant=tenant)


def post(address: str, prompt: tuple[int, ...], salt: str) -> dict[str, Any]:
    """Let an engine generate; gives its usage."""
    body = {"model": NAME, "prompt": list(prompt), "max_tokens": OUTPUT_TOKENS, "ignore_eos": True}
    if salt:
        body["cache_salt"] = salt
    request = urllib.request.Request(
        f"{address}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        found: dict[str, Any] = json.load(answer)["usage"]
    return found


def until(met: Callable[[], bool], what: str) -> None:
    """Wait for something that must come soon."""
    deadline = time.monotonic() + PATIENCE_S
    while not met():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.05)


def whole_blocks(tokens: int) -> int:
    """Prompt tokens that a repeat finds cached: whole blocks, and at least one token is computed anew."""
    return (tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS


def prompts(count: int, seed: int) -> Iterator[tuple[int, ...]]:
    """Prompts that begin with one of six shared parts, none of them a whole number of blocks long."""
    rng = np.random.default_rng(seed)
    shared = [rng.integers(0, WORDS, 96 + 64 * number).tolist() for number in range(6)]
    for _ in range(count):
        start, tail = shared[int(rng.integers(6))], int(rng.integers(1, 150))
        rest = tail + 1 if (len(start) + tail) % BLOCK_TOKENS == 0 else tail
        yield (*start, *rng.integers(0, WORDS, rest).tolist())


@pytest.fixture(name="world", scope="module")
def _world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("real")
    model = write_tiny_model(folder / "tiny")
    engines = {f"here/one/{i}": VllmEngine(model, folder / f"e{i}", core=i) for i in range(2)}
    lines = [
        ENDPOINT.format(id=name, at=engine.address, events=engine.kv_events, replay=engine.kv_replay)
        for name, engine in engines.items()
    ]
    (folder / "fleet.yaml").write_text(FLEET.format(block=BLOCK_TOKENS, endpoints="\n".join(lines)))
    (folder / "settings.yaml").write_text(SETTINGS)
    command = [sys.executable, "-m", "planner.cli.main", "serve", "router", "--json"]
    command += ["--fleet", str(folder / "fleet.yaml"), "--settings", str(folder / "settings.yaml")]
    command += ["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]
    try:
        for engine in engines.values():
            engine.start()
        for engine in engines.values():
            engine.wait_ready()
        with (
            (folder / "router.log").open("w") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as router,
        ):
            assert router.stdout is not None
            told = json.loads(router.stdout.readline())
            try:
                with RouterClient(told["address"]) as client:
                    yield World(engines, router, told["address"], told["metrics"], client)
            finally:
                router.kill()
    finally:
        for engine in engines.values():
            engine.stop()


def test_predicted_hits_are_what_the_engines_report_f030_f038(world: World) -> None:
    """F030, F038: 60 requests of two tenants, one by one; every prediction equals the engine's own count."""
    until(lambda: world.metric("endpoint_metrics_state", state="fresh") == 2, "fresh metrics of both engines")
    served: list[Served] = []
    for number, prompt in enumerate(prompts(60, seed=1)):
        done = world.serve(prompt, ("shop", "bank")[number % 2])
        served.append(done)
        # The engine's events travel on their own: the next prediction counts once they are in.
        until(
            lambda done=done: (
                world.hits(done.prompt, done.tenant)[done.endpoint_id]  # type: ignore[misc]
                >= whole_blocks(len(done.prompt))
            ),
            "the blocks of a served prompt",
        )
    assert [(done.predicted, done.cached) for done in served if done.predicted != done.cached] == []
    assert all(done.cached % BLOCK_TOKENS == 0 for done in served)
    assert sum(done.cached > 0 for done in served) >= 30
    assert len({done.endpoint_id for done in served}) == 2
    assert world.metric("predicted_hit_tokens_total") == world.metric("observed_hit_tokens_total")
    assert world.metric("prefix_index_blocks") > 0
    assert world.metric("kv_event_batches_total") >= 30
    assert world.metric("kv_event_gaps_total") + world.metric("kv_events_malformed_total") == 0
    until(lambda: world.metric("leases_open") == 0, "the end of all leases")
    assert world.metric("endpoint_inflight") == 0
    assert world.metric("endpoint_metrics_state", state="fresh") == 2


def test_a_tenants_blocks_are_not_found_by_another(world: World) -> None:
    """F146: the same prompt under another tenant is cold, in the prediction and in the engine."""
    prompt = next(prompts(1, seed=2))
    first = world.serve(prompt, "shop")
    until(lambda: world.hits(prompt, "shop")[first.endpoint_id] > 0, "the blocks of a served prompt")
    assert set(world.hits(prompt, "bank").values()) == {0}
    other = world.serve(prompt, "bank")
    assert (other.predicted, other.cached) == (0, 0)


def test_a_prompt_of_whole_blocks_is_known_to_within_its_last_block(world: World) -> None:
    """A fully cached prompt of whole blocks: the engine computes its last block anew, other engines one token."""
    prompt = tuple(np.random.default_rng(3).integers(0, WORDS, 4 * BLOCK_TOKENS).tolist())
    first = world.serve(prompt, "shop")
    until(lambda: world.hits(prompt, "shop")[first.endpoint_id] > 3 * BLOCK_TOKENS, "all four blocks")
    again = world.serve(prompt, "shop", at=first.endpoint_id)
    assert again.cached == 3 * BLOCK_TOKENS
    assert again.predicted == len(prompt) - 1


def test_requests_at_a_time_find_at_least_what_was_predicted(world: World) -> None:
    """Forty requests, eight at a time: meanwhile blocks only come, so an engine may reuse more, never less."""
    asked = list(prompts(40, seed=4))
    with ThreadPoolExecutor(8) as pool:
        served = list(pool.map(lambda prompt: world.serve(prompt, "shop"), asked))
    assert [(done.predicted, done.cached) for done in served if done.cached < done.predicted] == []
    more = [done.cached - done.predicted for done in served if done.cached > done.predicted]
    print(f"{len(more)} of {len(served)} reused more than was predicted, {sum(more)} tokens in all")
    assert {done.endpoint_id for done in served} == set(world.engines)
    until(lambda: world.metric("leases_open") == 0, "the end of all leases")
    assert world.metric("endpoint_inflight") == 0


def test_an_engine_that_crashed_and_came_back_starts_empty_and_is_used_f021(world: World) -> None:
    """F021: what its old process held is forgotten; the other's blocks stay; then it serves again."""
    prompt = next(prompts(1, seed=5))
    gone = world.serve(prompt, "shop").endpoint_id
    until(lambda: world.hits(prompt, "shop")[gone] > 0, "the blocks of a served prompt")
    engine = world.engines[gone]
    engine.kill()
    until(lambda: world.metric("endpoint_metrics_state", endpoint=gone, state="stale") == 1, "stale metrics")
    others = [world.serve(each, "shop") for each in prompts(8, seed=6)]
    assert gone not in {done.endpoint_id for done in others}
    held = world.hits(others[0].prompt, "shop")[others[0].endpoint_id]
    engine.start()
    engine.wait_ready()
    until(lambda: world.metric("endpoint_metrics_state", endpoint=gone, state="fresh") == 1, "fresh metrics again")
    assert world.hits(prompt, "shop")[gone] == 0
    assert world.hits(others[0].prompt, "shop")[others[0].endpoint_id] >= held
    fresh = list(prompts(24, seed=7))
    with ThreadPoolExecutor(8) as pool:
        served = list(pool.map(lambda each: world.serve(each, "shop"), fresh))
    back = [done for done in served if done.endpoint_id == gone]
    assert back
    until(
        lambda: world.hits(back[-1].prompt, "shop")[gone] >= whole_blocks(len(back[-1].prompt)),
        "blocks of the new process",
    )
    again = world.serve(back[-1].prompt, "shop", at=gone)
    assert again.predicted == again.cached == whole_blocks(len(again.prompt))


def test_the_router_drains(world: World) -> None:
    """No new requests once it was told to stop; what runs is finished, then it ends with nothing open."""
    prompt = next(prompts(1, seed=8))
    with world.client.route(query(prompt, "shop"), deadline_s=30.0) as attempt:
        world.router.terminate()
        until(
            lambda: (
                isinstance(refused := world.client.ask(query(prompt, "shop")), Refusal)
                and refused.reason == "shutting_down"
            ),
            "refusals",
        )
        usage = post(attempt.placement.address, prompt, attempt.placement.cache_salt)
        attempt.finish(int(usage["completion_tokens"]))
    assert world.router.wait(PATIENCE_S) == 0
