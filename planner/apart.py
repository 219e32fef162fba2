"""Runs one function in a fresh process at lowered priority, with a deadline: what hangs or crashes stays there.

The process ends when its parent does, however the parent ends, and its result reaches nobody but its caller: work
that was cut short leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from planner.priority import Priority, lower_priority
from planner.work_pool import WorkError

Result = TypeVar("Result")
LOOK_S = 0.5
"""How often a waiting caller looks whether it shall stop."""
GOODBYE_S = 2.0
"""Time between asking a process to end and ending it."""


def run_apart(
    function: Callable[..., Result],
    *arguments: Any,
    priority: Priority = "low",
    deadline_s: float | None = None,
    stop: threading.Event | None = None,
) -> Result:
    """``function(*arguments)``, computed in a spawned process while this thread sleeps.

    Args:
        function: Picklable, as are its arguments and its result.
        arguments: What it is called with.
        priority: Of that process, set before it does anything.
        deadline_s: The process is stopped after so long; ``None`` = as long as it takes.
        stop: The process is stopped soon after this is set.

    Raises:
        WorkError: The process died, the time was up, or it was told to stop.
        Exception: What the function raised.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(theirs, priority, pickle.dumps((function, arguments))))
    process.start()
    theirs.close()
    try:
        # The pipe first: an answer that is there counts, even if the process has ended since.
        _await([ours, process.sentinel], deadline_s, stop)
        try:
            raised, value = ours.recv()
        except EOFError as error:
            process.join()
            raise WorkError(f"the process died with exit code {process.exitcode} (out of memory?)") from error
    finally:
        _end(process)
        ours.close()
    if raised:
        raise value
    result: Result = value
    return result


def _await(ends: list[Any], deadline_s: float | None, stop: threading.Event | None) -> None:
    """Wait for an answer or the end of the process."""
    until_s = math.inf if deadline_s is None else time.monotonic() + deadline_s
    while not wait(ends, min(LOOK_S, max(until_s - time.monotonic(), 0.0))):
        if time.monotonic() >= until_s:
            raise WorkError(f"not done after {deadline_s:g} s")
        if stop is not None and stop.is_set():
            raise WorkError("told to stop")


def _serve(answer: Connection, priority: Priority, work: bytes) -> None:
    """What the process does."""
    # A service's Ctrl-C is the service's to handle; SIGTERM unwinds, so that helpers of ours are ended too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _unwind)
    lower_priority(priority)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        # Only now: unpacking is work too.
        function, arguments = pickle.loads(work)
        found = False, function(*arguments)
    except Exception as error:
        found = True, error
    try:
        answer.send(found)
    except Exception as error:
        answer.send((True, WorkError(f"the answer cannot be passed on: {type(error).__name__}: {found[1]}")))
    answer.close()


def _unwind(number: int, frame: Any) -> None:  # noqa: ARG001
    raise SystemExit(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _end(process: Any) -> None:
    """Let a process that is done leave; stop one that is not."""
    if process.is_alive():
        process.join(0.0)
        with contextlib.suppress(OSError):
            process.terminate()
        process.join(GOODBYE_S)
    if process.is_alive():
        process.kill()
    process.join()
    process.close()
