"""Hot spots and a hung worker: TokenFleet's router beside real gateways, in front of the same eight fake engines.

A gateway takes part when its environment variable names how it is started:

    TOKENFLEET_SGLANG_ROUTER=/path/to/venv/bin/python     sglang-router 0.3.2
    TOKENFLEET_SMG=/path/to/venv/bin/smg                  smg 1.13.0
    TOKENFLEET_VLLM_ROUTER=/path/to/venv/bin/vllm-router  vllm-router 0.1.17

Each arm runs at its defaults. The engines wait and do not compute, so results hold on a busy machine; throughput
is always a share of the same arm's own run without the fault.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.closed_loop import MAX_TOKENS, MODEL, PATIENCE_S, Prompts
from router.client import Query, RouterClient

WORKERS, CLIENTS = 8, 16
SHARED_TOKENS = 1000
HUNG = 2
HALF_S = 4.0
ANSWER_S = 0.1
READY_S = 90.0
SETTLE_S = 1.0
"""Until the router's reports say that nothing runs any more."""
FLEET = """\
name: gateways
sites:
  - {{name: here, role: compute, zone: z}}
gpu_pools:
  - {{site: here, gpu_type: H100, count: {count}}}
models:
  - {{name: mock-model, version: '1', catalog: llama-3.1-8b, context_limit_tokens: 32768}}
configs:
  - {{name: one, model: mock-model@1, gpu_type: H100, tensor_parallel: 1}}
classes:
  - {{name: interactive, slo: {{ttft_s: 1.0, tpot_s: 0.1}}}}
tenants: []
endpoints:
{endpoints}
"""


@dataclass(frozen=True, slots=True)
class Arm:
    """One router or gateway, and how clients reach it."""

    name: str
    kind: str
    command: tuple[str, ...]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def process(command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A child that ends with the block."""
    child = subprocess.Popen(command, text=True, **options)
    try:
        yield child
    finally:
        if child.stdin is not None:
            child.stdin.close()
        child.terminate()
        try:
            child.wait(5.0)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


@contextmanager
def workers() -> Iterator[tuple[list[str], int]]:
    """The fake engines: their addresses and the control port."""
    control = free_port()
    command = [sys.executable, "-m", "benchmarks.fakes.gateway_workers", str(WORKERS), str(control)]
    with process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        yield json.loads(child.stdout.readline()), control


def control(port: int, path: str) -> Any:
    """Tell or ask the fake engines something."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return json.loads(answer.read())


def arms(addresses: list[str], port: int, folder: Path) -> list[Arm]:
    """TokenFleet, and every gateway that is installed."""
    endpoints = "\n".join(
        f"  - {{id: here/one/{i}, site: here, config: one, address: '{address}'}}"
        for i, address in enumerate(addresses)
    )
    fleet = folder / "fleet.yaml"
    fleet.write_text(FLEET.format(count=len(addresses), endpoints=endpoints))
    ours = ("-m", "planner.cli.main", "serve", "router", "--fleet", str(fleet), "--listen", f"127.0.0.1:{port}")
    command = (sys.executable, *ours)
    found = [Arm("TokenFleet", "router", command), Arm("TokenFleet, callers move", "moving", command)]
    common = ("--host", "127.0.0.1", "--port", str(port), "--worker-urls", *addresses, "--log-level", "error",
              "--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port()))  # fmt: skip
    gateways = (
        ("TOKENFLEET_SGLANG_ROUTER", "sglang-router", ("-m", "sglang_router.launch_router"),
         ("cache_aware", "power_of_two")),
        ("TOKENFLEET_SMG", "smg", ("launch", "--disable-tokenizer-autoload"), ("cache_aware", "least_load")),
        ("TOKENFLEET_VLLM_ROUTER", "vllm-router", (), ("cache_aware", "power_of_two")),
    )  # fmt: skip
    for variable, name, start, policies in gateways:
        program = os.environ.get(variable)
        if program:
            found += [
                Arm(f"{name}, {policy}", "http", (program, *start, *common, "--policy", policy))
                for policy in policies
            ]
    return found


@contextmanager
def running(arm: Arm, port: int, log: Path) -> Iterator[str]:
    """Start an arm and wait until a request passes it; gives its address for clients."""
    target = f"http://127.0.0.1:{port}" if arm.kind == "http" else f"127.0.0.1:{port}"
    environment = {**os.environ, "RUST_LOG": "error", "HF_HUB_OFFLINE": "1", "NO_PROXY": "127.0.0.1"}
    with (
        log.open("w") as output,
        process(list(arm.command), stdout=output, stderr=output, env=environment) as child,
    ):
        deadline = time.monotonic() + READY_S
        while load(arm, target, clients=1, seconds=0.2, shared=0)["ok"] == 0:
            if child.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{arm.name} did not start: {log.read_text()[-600:]}")
            time.sleep(0.5)
        # Gateways add workers one by one; all must be there before anything is counted.
        time.sleep(2.0)
        yield target


def load(arm: Arm, target: str, clients: int, seconds: float, shared: int) -> dict[str, Any]:
    """Closed-loop load from a process of its own; all zero where the arm cannot be reached."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.closed_loop",
        arm.kind,
        target,
        str(clients),
        str(seconds),
        str(shared),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {"ok": 0}
    return found


@dataclass(frozen=True, slots=True)
class Kept:
    """What a hung worker has left of the throughput.

    Attributes:
        share: Answers over those of the run without the fault.
        timed_out: Requests that clients gave up in the run with it.
    """

    share: float
    timed_out: int


def hung(arm: Arm, port: int, log: Path, control_port: int) -> Kept:
    """A run without a fault, then one with a hung worker; both start with a fresh router."""
    answered: list[int] = []
    timed_out = 0
    for worker in (-1, HUNG):
        control(control_port, f"/set?ttft_s={ANSWER_S}")
        with running(arm, port, log) as target:
            control(control_port, f"/set?ttft_s={ANSWER_S}&hang={worker}")
            halves = [load(arm, target, CLIENTS, HALF_S, 0) for _ in range(2)]
        answered.append(sum(half["ok"] for half in halves))
        timed_out = sum(half["timed_out"] for half in halves)
    return Kept(answered[1] / max(answered[0], 1), timed_out)


def hot_spot(arm: Arm, port: int, log: Path, control_port: int, clients: int) -> tuple[float, bool]:
    """Requests of the busiest worker over the mean, when all prompts share their first tokens.

    Also whether the router's own prediction justifies it, see ``are_quickest``. Gateways predict nothing.
    """
    control(control_port, f"/set?ttft_s={ANSWER_S}")
    with running(arm, port, log) as target:
        control(control_port, f"/set?ttft_s={ANSWER_S}")
        load(arm, target, clients, 5.0, SHARED_TOKENS)
        taken = [worker["taken"] for worker in control(control_port, "/stats")]
        justified = arm.kind == "router" and are_quickest(target, taken)
    return max(taken) * len(taken) / max(sum(taken), 1), justified


def are_quickest(target: str, taken: list[int]) -> bool:
    """Whether the router predicts that every worker above twice the mean would end the next shared prompt before
    every worker below the mean, beyond a tie."""
    time.sleep(SETTLE_S)
    mean = sum(taken) / len(taken)
    prompt = Prompts(SHARED_TOKENS).next()
    with RouterClient(target) as client:
        query = Query(f"{MODEL}@1", token_ids=prompt, output_budget=MAX_TOKENS)
        done_s = {int(c.endpoint_id.rsplit("/", 1)[1]): c.completion_s for c in client.explain(query).candidates}
    busy = [done_s[i] for i, count in enumerate(taken) if count > 2 * mean]
    idle = [done_s[i] for i, count in enumerate(taken) if count < mean and i in done_s]
    return bool(busy) and bool(idle) and max(busy) < 0.99 * min(idle)


def rows(quick: bool) -> list[dict[str, object]]:
    """One row an arm and measure; the quick form runs TokenFleet alone, once."""
    runs = 1 if quick else 5
    table: list[dict[str, object]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        addresses, control_port = stack.enter_context(workers())
        port = free_port()
        every = arms(addresses, port, folder)
        for arm in every[:1] if quick else every:
            log = folder / "log.txt"
            ours = arm.kind != "http"
            every_run = [hung(arm, port, log, control_port) for _ in range(runs)]
            kept = min(run.share for run in every_run)
            table.append(
                {
                    "id": f"gateways.hung_worker_kept[{arm.name}]",
                    "area": "router",
                    "value": round(kept, 3),
                    "unit": f"share of its own throughput without the fault, worst of {runs}",
                    "reference": ", ".join(f"{run.share:.3f} ({run.timed_out} given up)" for run in every_run),
                    "target": ">= 0.95" if ours else "-",
                    "met": kept >= 0.95 if ours else None,
                }
            )
            lost = max(run.timed_out for run in every_run) * PATIENCE_S / (CLIENTS * 2 * HALF_S)
            table.append(
                {
                    "id": f"gateways.hung_worker_time_lost[{arm.name}]",
                    "area": "router",
                    "value": round(lost, 3),
                    "unit": f"share of all clients' time spent on requests that were given up, worst of {runs}",
                    "reference": "holds on a busy machine, where throughput varies by itself",
                    "target": "-",
                    "met": None,
                }
            )
            # Callers that move act alike where nothing hangs.
            for clients in () if arm.kind == "moving" else (1, 48):
                spread, justified = hot_spot(arm, port, log, control_port, clients)
                table.append(
                    {
                        "id": f"gateways.hot_spot[{arm.name}, {clients} clients]",
                        "area": "router",
                        "value": round(spread, 2),
                        "unit": "busiest worker / mean, one shared prefix",
                        "target": "<= 2 or justified" if ours else "-",
                        "reference": "its predicted time is better" if justified else "-",
                        "met": (spread <= 2.0 or justified) if ours else None,
                    }
                )
            print("\n".join(str(row) for row in table if arm.name in str(row["id"])), file=sys.stderr, flush=True)
    return table


if __name__ == "__main__":
    rows(quick="--full" not in sys.argv)
