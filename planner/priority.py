"""Lowers the priority of background work, so that processes which serve on the same machine do not feel it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

Priority = Literal["normal", "low", "idle"]
PRIORITIES: tuple[Priority, ...] = ("normal", "low", "idle")
LOW_NICENESS = 10
IDLE_NICENESS = 19
"""``idle`` also takes Linux's idle scheduling class, which runs, reads and writes when nobody else wants to."""


def lower_priority(priority: Priority) -> None:
    """Lower this thread's priority, and that of the threads and processes it starts afterwards; never raise it.

    Niceness is inherited by the disk's scheduler as well. What the system does not allow or know stays as it was.
    """
    if priority == "normal":
        return
    wanted = IDLE_NICENESS if priority == "idle" else LOW_NICENESS
    os.setpriority(os.PRIO_PROCESS, 0, max(os.getpriority(os.PRIO_PROCESS, 0), wanted))
    if priority == "idle" and hasattr(os, "SCHED_IDLE"):
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


@contextmanager
def lowered_priority(priority: Priority) -> Iterator[None]:
    """The same inside the block. Afterwards it is as before if the system lets this process raise it again."""
    niceness, policy = os.getpriority(os.PRIO_PROCESS, 0), _policy()
    lower_priority(priority)
    try:
        yield
    finally:
        with suppress(OSError):
            if policy is not None:
                os.sched_setscheduler(0, policy, os.sched_param(0))
            os.setpriority(os.PRIO_PROCESS, 0, niceness)


def _policy() -> int | None:
    """The scheduling class of this thread if it is an ordinary one."""
    if not hasattr(os, "sched_getscheduler"):
        return None
    policy = os.sched_getscheduler(0)
    return policy if policy in (os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_IDLE) else None
