"""``tokenfleet serve router`` as a process, for tests and benchmarks."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MAIN = "import sys; from planner.cli.main import main; main(sys.argv[1:])"


class ServeProcess:
    """A router on a free port, from entering the block to its end; leaving it drains.

    Args:
        arguments: Of ``serve router``, beside ``--listen`` and ``--json``.
        code: Python code that runs the command line.

    Attributes:
        told: What it printed: ``address`` and ``metrics``.
        errors: All of its standard error, once it has ended.
        code: Its exit code, once it has ended.
    """

    def __init__(self, *arguments: str, code: str = MAIN) -> None:
        self._arguments = arguments
        self._code = code
        self.told: dict[str, Any] = {}
        self.errors = ""
        self.code: int | None = None

    def __enter__(self) -> ServeProcess:
        command = [sys.executable, "-c", self._code, "serve", "router", "--listen", "127.0.0.1:0", "--json"]
        self._process = subprocess.Popen(
            [*command, *self._arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._end()
            raise RuntimeError(self.errors)
        self.told = json.loads(line)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.signal(signal.SIGTERM)
        self._end()

    @property
    def address(self) -> str:
        """Where it listens."""
        return str(self.told["address"])

    @property
    def page(self) -> str:
        """``http://host:port`` of its metrics page."""
        return str(self.told["metrics"]).removesuffix("/metrics")

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        if self._process.poll() is None:
            self._process.send_signal(number)

    def _end(self) -> None:
        try:
            _, self.errors = self._process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            _, self.errors = self._process.communicate()
        self.code = self._process.returncode
