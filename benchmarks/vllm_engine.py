"""A real vLLM engine on CPU as a child process: prefix caching, KV events and replay over ``ipc://``.

``TOKENFLEET_VLLM_PYTHON`` names the interpreter that has vLLM for CPU. See docs/router-benchmarks.md for how such
an environment is made.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

PYTHON = os.environ.get("TOKENFLEET_VLLM_PYTHON")
NAME = "tiny"
BLOCK_TOKENS = 32
"""The CPU backend takes multiples of 32 only."""
READY_S = 400.0
STOP_S = 60.0
ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
}


class VllmEngine:
    """One engine at a fixed port, so that it can be stopped and started again behind the same address.

    Args:
        model: Folder from ``benchmarks.tiny_model``.
        folder: For its sockets and its log. A socket's path has at most 107 bytes: keep it short.
        core: Processor core that it computes on.
        cache_bytes: KV memory.
    """

    def __init__(self, model: Path, folder: Path, core: int = 0, cache_bytes: int = 16 << 20) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.kv_events = f"ipc://{folder}/kv.ipc"
        self.kv_replay = f"ipc://{folder}/replay.ipc"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.log = folder / "engine.log"
        self._model = model
        self._core = core
        self._cache_bytes = cache_bytes
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where its API listens."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the process; ``wait_ready`` says when it serves."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", *self._options()],
                env={**os.environ, **ENVIRONMENT, "VLLM_CPU_OMP_THREADS_BIND": str(self._core)},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Wait until it answers.

        Raises:
            RuntimeError: The process ended; the message has the end of its log.
            TimeoutError: It did not come up in time.
        """
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"the engine ended: {self.log.read_text(errors='replace')[-2000:]}")
            try:
                with urllib.request.urlopen(f"{self.address}/health", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                pass
            time.sleep(0.5)
        raise TimeoutError(f"no answer from {self.address} within {READY_S:.0f} s")

    def stop(self) -> None:
        """End it in order."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it and its children at once, as a crash would."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if how is signal.SIGKILL:
            # The engine's own processes are in its session and must not outlive it.
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.send_signal(how)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(STOP_S)

    def _options(self) -> list[str]:
        events = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": self.kv_events,
            "replay_endpoint": self.kv_replay,
            "topic": f"kv@{self.port}",
        }
        options: dict[str, Any] = {
            "--model": self._model,
            "--served-model-name": NAME,
            "--load-format": "dummy",
            "--host": "127.0.0.1",
            "--port": self.port,
            "--dtype": "bfloat16",
            "--max-model-len": 8192,
            "--max-num-seqs": 16,
            "--max-num-batched-tokens": 2048,
            "--block-size": BLOCK_TOKENS,
            "--kv-cache-memory-bytes": self._cache_bytes,
            "--prefix-caching-hash-algo": "sha256_cbor",
            "--kv-events-config": json.dumps(events),
        }
        flags = ["--enforce-eager", "--enable-prefix-caching", "--enable-prompt-tokens-details"]
        return [*flags, *(str(part) for pair in options.items() for part in pair)]
