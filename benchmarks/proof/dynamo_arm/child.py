"""The child process that chooses, and the pipe to it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, cast

from benchmarks.proof.dynamo_arm.messages import (
    Asked,
    Chosen,
    Fault,
    FromChild,
    Notice,
    Opening,
    Ready,
    ToChild,
    Turn,
    from_child,
    send,
)

PROGRAM = "TOKENFLEET_DYNAMO_PYTHON"
MODULE = "benchmarks.proof.dynamo_arm.dynamo_program"
ROOT = Path(__file__).resolve().parents[3]
END_S = 20.0


class Child:
    """A process that answers turns. Use it as a context manager; leaving closes the pipe, which ends it.

    Args:
        command: Program and arguments.
        environment: Added to this process's own.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, closed with the child
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **(environment or {})},
        )
        self._inward = cast(BinaryIO, self._process.stdin)
        self._outward = cast(BinaryIO, self._process.stdout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self, opening: Opening) -> None:
        """Tell the fleet.

        Raises:
            RuntimeError: The child has ended or given up.
        """
        answer = self._ask(opening)
        assert isinstance(answer, Ready)

    def turn(self, notices: Sequence[Notice], asked: Asked) -> Chosen:
        """Tell what happened and ask for a place; errors as in :meth:`open`."""
        answer = self._ask(Turn(list(notices), asked))
        assert isinstance(answer, Chosen)
        return answer

    def close(self) -> int:
        """End the child, if it has not ended, and give its exit code."""
        with suppress(BrokenPipeError):
            self._inward.close()
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._outward.close()
        self._errors.close()
        return code

    def _ask(self, message: ToChild) -> FromChild:
        try:
            send(self._inward, message)
            answer = from_child(self._outward)
        except (BrokenPipeError, EOFError):
            answer = None
        if answer is None:
            raise RuntimeError(f"the child has ended: {self._last_words()}")
        if isinstance(answer, Fault):
            raise RuntimeError(f"the child gave up: {answer.text}")
        return answer

    def _last_words(self) -> str:
        self._process.wait(END_S)
        self._errors.seek(0)
        return (
            self._errors.read().decode(errors="replace").strip()[-400:] or f"exit code {self._process.returncode}"
        )


def dynamo_child(python: str, scale: float) -> Child:
    """Dynamo's service with a scale of the prefill part; all else at its defaults."""
    settings = {"DYN_ROUTER_PREFILL_LOAD_SCALE": str(scale), "DYN_LOG": "error"}
    return Child([python, "-m", MODULE], settings)


def interpreter() -> str | None:
    """The interpreter with ``ai-dynamo-runtime`` 1.6.1, if the environment names one."""
    return os.environ.get(PROGRAM) or None
