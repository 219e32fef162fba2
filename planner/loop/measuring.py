"""Capacities are measured beside the loop, one after the other, so that no step waits for a load test.

A step plans with the capacities that the file holds and names those that it lacks; for them it takes the closed
form. Each is then measured in a process of its own at low priority, and the next step finds it in the file.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from data.errors import TokenFleetError
from models.capacity import GroupRate
from models.capacity_check import CapacityCase
from planner.apart import run_apart
from planner.capacity_cache import CapacityCache

LOG = logging.getLogger("tokenfleet.planner")
DEADLINE_S = 1800.0
"""A case that takes longer is left to the closed form until it is asked for again."""
Wanted = Sequence[tuple[CapacityCase, GroupRate]]


class Measuring:
    """Measures what the last step lacked.

    Args:
        path: File of measured capacities; nobody else writes it while this one works.
        apart: Runs a measurement elsewhere; see :func:`planner.apart.run_apart`.
    """

    def __init__(self, path: Path, apart: Callable[..., Any] = run_apart) -> None:
        self.path = path
        self._apart = apart
        self._wanted: list[tuple[CapacityCase, GroupRate]] = []
        self._change = threading.Condition()
        self._stop = threading.Event()

    def want(self, wanted: Wanted) -> None:
        """Measure these from now on, in this order; what was wanted before and is not among them is forgotten."""
        with self._change:
            self._wanted = list(wanted)
            self._change.notify_all()

    def run(self) -> None:
        """Measure whatever is wanted, until :meth:`stop`; for a thread of its own."""
        while not self._stop.is_set():
            with self._change:
                self._change.wait_for(lambda: bool(self._wanted) or self._stop.is_set())
            self.measure_one()

    def stop(self) -> None:
        """Stop soon; a running measurement is given up."""
        self._stop.set()
        with self._change:
            self._change.notify_all()

    def measure_one(self) -> bool:
        """Measure the next case that is wanted; whether there was one. Never raises what the measuring raises."""
        with self._change:
            if not self._wanted or self._stop.is_set():
                return False
            case, closed = self._wanted.pop(0)
        try:
            self._apart(measure_into, self.path, case, closed, deadline_s=DEADLINE_S, stop=self._stop)
        except (TokenFleetError, OSError) as error:
            LOG.warning("a capacity is not measured: %s", error)
        return True


def measure_into(path: Path, case: CapacityCase, closed: GroupRate) -> None:
    """Measure one case into the file, unless it stands there.

    Raises:
        InputError: The file is no such file.
        OSError: It cannot be written.
    """
    CapacityCache(path)(case, closed)
