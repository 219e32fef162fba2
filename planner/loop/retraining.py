"""Retrains the latency models on a schedule of its own, beside the loop and never in its way."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.catalog.load import load_catalog
from data.errors import TokenFleetError
from data.fleet.types import Fleet
from models.hardware import fleet_kinds
from planner.loop.schedule import Schedule
from planner.plan_store.store import utc_text
from planner.retrain import RetrainJob
from planner.retrain_apart import RetrainOutcome, retrain_apart

LOG = logging.getLogger("tokenfleet.planner")


@dataclass(frozen=True, slots=True)
class RetrainingSettings:
    """What is trained, when, and where the model goes.

    Attributes:
        log: Folder of the decision and outcome log.
        models: Folder of the model store; a router that watches it takes a promoted model over.
        schedule: When.
        history_s: How much of the log is trained on, seconds.
        deadline_s: A training that takes longer is given up.
    """

    log: Path
    models: Path
    schedule: Schedule
    history_s: float = 14 * 86_400.0
    deadline_s: float = 4 * 3600.0


class Retraining:
    """Trains in a process of its own at low priority; a failure is told and the next turn comes.

    Args:
        settings: What, when, where.
        fleet: Gives the fleet as it is now.
        clock: Seconds since the epoch.
        train: Trains and publishes; see :func:`planner.retrain_apart.retrain_apart`.

    Attributes:
        last: What became of the last training, in words; "" = there was none.
    """

    def __init__(
        self,
        settings: RetrainingSettings,
        fleet: Callable[[], Fleet],
        clock: Callable[[], float] = time.time,
        train: Callable[..., RetrainOutcome] = retrain_apart,
    ) -> None:
        self._settings, self._fleet = settings, fleet
        self._clock, self._train = clock, train
        self._stop = threading.Event()
        self.last = ""

    def run(self) -> None:
        """Train whenever it is due, until :meth:`stop`; for a thread of its own."""
        while not self._stop.is_set():
            now_s = self._clock()
            if self._stop.wait(max(self._settings.schedule.next_s(now_s) - now_s, 0.0)):
                return
            self.train_now()

    def stop(self) -> None:
        """Stop soon; a running training is given up and leaves nothing in the store."""
        self._stop.set()

    def train_now(self) -> str:
        """Train once; gives what became of it, in words. Never raises what the training raises."""
        now_s, settings = self._clock(), self._settings
        kinds: Any = fleet_kinds([self._fleet()], load_catalog())
        job = RetrainJob([settings.log], kinds, utc_text(now_s), max(now_s - settings.history_s, 0.0), now_s)
        try:
            done = self._train(job, settings.models, deadline_s=settings.deadline_s, stop=self._stop)
        except (TokenFleetError, OSError) as error:
            self.last = f"failed: {error}"
            LOG.warning("retraining %s", self.last)
            return self.last
        verdict = "promoted" if done.promoted else "not promoted: " + "; ".join(done.reasons)
        self.last = f"{done.version} {verdict}"
        LOG.info("retraining: %s", self.last)
        return self.last
