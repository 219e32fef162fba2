"""Solves models in a process of its own under a watchdog: a crash, hang or kill costs one answer, not the planner.

The child is a fresh interpreter (never a fork: solver libraries keep threads), in its own session so that helpers
it starts die with it, and with a temporary folder of its own that is removed even after a crash.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from types import TracebackType

from solver.linear import Backend, LinearModel, LinearSolution, SolveLimits, SolveStatus, WarmStart, no_solution
from solver.wire import HEADER_BYTES, frame, pack_request, unpack_answer

GRACE_S = 0.6
"""A child that has not answered this long after its limit is killed."""
MEMORY_MB = 16_384
"""Address space of a solver, libraries included: far above what the largest plan has needed."""
CHUNK_BYTES = 1 << 20
STDERR_BYTES = 2000


class ChildSolver:
    """A solver process that is started on first use and started anew after it died. Not thread-safe: one a thread.

    Use it as a context manager; it satisfies ``solver.linear.ModelSolver``.

    Args:
        memory_mb: Most address space of the child and of each helper that it starts; 0 = no bound.
    """

    def __init__(self, memory_mb: int = MEMORY_MB) -> None:
        self._memory_mb = memory_mb
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.pid: int | None = None
        """Process id of the running child, for tests and for the log."""
        self.deaths = 0
        """How many children died or had to be killed."""

    def __enter__(self) -> ChildSolver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __call__(
        self,
        model: LinearModel,
        limits: SolveLimits,
        start: WarmStart | None = None,
        backend: Backend = "highs",
    ) -> LinearSolution:
        """Solve within ``limits.time_limit_s`` plus less than a second, whatever the solver does."""
        began = time.monotonic()
        deadline_s = began + limits.time_limit_s
        answer = self.ask(pack_request(model, limits, start, backend, deadline_s), deadline_s)
        if isinstance(answer, str):
            return no_solution(SolveStatus.ERROR, answer, time.monotonic() - began)
        return unpack_answer(answer)

    def ask(self, body: bytes, deadline_s: float) -> bytes | str:
        """Send one message of ``solver.wire`` and wait for its answer.

        Args:
            body: The message.
            deadline_s: On the monotonic clock; a child that is silent until shortly after it is killed.

        Returns:
            The answer, or in words why there is none.
        """
        try:
            process = self._running()
            answer = _exchange(process, frame(body), deadline_s + GRACE_S)
        except OSError as error:
            return self._died(f"solver process cannot run: {error}")
        if answer is None:
            hung = process.poll() is None
            why = "no answer in time" if hung else f"ended with code {process.returncode}"
            return self._died(f"solver process gave up: {why}. {self._last_words()}".strip())
        return answer

    def close(self) -> None:
        """End the child and remove its temporary folder."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()
            self._process.wait()
        if self._folder is not None:
            self._folder.cleanup()
        self._process, self._folder, self.pid = None, None, None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        self._folder = tempfile.TemporaryDirectory(prefix="tokenfleet-solver-")
        environment = {
            **os.environ,
            "TMPDIR": self._folder.name,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        with open(os.path.join(self._folder.name, "stderr"), "wb") as errors:  # noqa: PTH118, PTH123
            self._process = subprocess.Popen(
                [sys.executable, "-m", "solver.worker", str(self._memory_mb)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
        self.pid = self._process.pid
        return self._process

    def _last_words(self) -> str:
        if self._folder is None:
            return ""
        with contextlib.suppress(OSError), open(os.path.join(self._folder.name, "stderr"), "rb") as errors:  # noqa: PTH118, PTH123
            return errors.read()[-STDERR_BYTES:].decode(errors="replace").strip()
        return ""

    def _died(self, detail: str) -> str:
        self.deaths += 1
        self.close()
        return detail


def _exchange(process: subprocess.Popen[bytes], request: bytes, until_s: float) -> bytes | None:
    """Send one request and read one answer; ``None`` if the child dies or the time is over."""
    assert process.stdin is not None
    assert process.stdout is not None
    pipe = process.stdin

    def send() -> None:
        with contextlib.suppress(OSError, ValueError):
            pipe.write(request)
            pipe.flush()

    # A thread writes: a child that hangs before it reads would otherwise block us on a full pipe.
    threading.Thread(target=send, daemon=True).start()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        received = bytearray()
        needed = HEADER_BYTES
        while len(received) < needed:
            if not selector.select(max(until_s - time.monotonic(), 0.0)):
                return None
            chunk = os.read(process.stdout.fileno(), CHUNK_BYTES)
            if not chunk:
                process.wait()
                return None
            received += chunk
            if len(received) >= HEADER_BYTES:
                needed = HEADER_BYTES + int.from_bytes(received[:HEADER_BYTES], "little")
    return bytes(received[HEADER_BYTES:needed])
