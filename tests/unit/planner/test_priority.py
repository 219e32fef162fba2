"""Background work lowers its priority, and that of what it starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from planner.priority import IDLE_NICENESS, LOW_NICENESS, PRIORITIES, Priority, lowered_priority

PROGRAM = """
import json, os, subprocess, sys
from planner.priority import lower_priority
lower_priority(sys.argv[1])
mine = os.getpriority(os.PRIO_PROCESS, 0)
lower_priority("low")
child = subprocess.run([sys.executable, "-c", "import os; print(os.nice(0))"], capture_output=True, text=True)
print(json.dumps({"mine": mine, "again": os.getpriority(os.PRIO_PROCESS, 0), "child": int(child.stdout),
                  "policy": os.sched_getscheduler(0)}))
"""


@pytest.mark.parametrize("priority", PRIORITIES)
def test_priority_is_lowered_for_the_process_and_its_children(priority: Priority) -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM, priority], capture_output=True, text=True, check=True)
    got = json.loads(ran.stdout)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    wanted = {"normal": own, "low": max(own, LOW_NICENESS), "idle": IDLE_NICENESS}[priority]
    assert got["mine"] == wanted
    assert got["again"] == got["child"] == max(wanted, LOW_NICENESS), "a second call never raises it"
    if priority == "idle":
        assert got["policy"] == os.SCHED_IDLE


def test_a_block_at_lowered_priority() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with lowered_priority("low"):
        assert os.getpriority(os.PRIO_PROCESS, 0) == max(before, LOW_NICENESS)
    # Only a process that may raise its priority gets it back.
    assert os.getpriority(os.PRIO_PROCESS, 0) in (before, max(before, LOW_NICENESS))
