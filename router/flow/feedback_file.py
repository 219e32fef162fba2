"""Keeps what the feedback has learned in a file: for the next process, and for a planner that reads it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from data.errors import DocumentError
from router.flow.flow_desk import FlowDesk
from router.flow.flow_hooks import FlowHooks
from router.slomax.corrected import Corrected
from router.slomax.feedback_state import SavedFeedback, load_feedback, save_feedback

LOG = logging.getLogger("tokenfleet.feedback")


class FeedbackFile:
    """The file of one router.

    Args:
        path: Where it is.
        corrected: What is kept.
        clock: Seconds since the epoch.
    """

    def __init__(self, path: Path, corrected: Corrected, clock: Callable[[], float]) -> None:
        self._path = path
        self._corrected = corrected
        self._clock = clock
        self._writing = asyncio.Lock()
        self._refused = False

    def read(self) -> bool:
        """Go on where the last process was; gives whether. A file of no use is logged and left aside."""
        try:
            saved = load_feedback(self._path)
        except DocumentError as error:
            LOG.warning("feedback starts without what was learned: %s", error)
            return False
        if saved is None:
            LOG.info("no feedback at %s: nothing is corrected until there is evidence", self._path)
            return False
        self._corrected.restore(saved, self._clock())
        return True

    async def write(self) -> bool:
        """Write the present state; gives whether. A disk that refuses is logged once, never an error."""
        feedback = self._corrected.feedback
        async with self._writing:
            saved = SavedFeedback(self._clock(), feedback.state(), feedback.settings)
            try:
                await asyncio.to_thread(save_feedback, self._path, saved)
            except OSError as error:
                if not self._refused:
                    LOG.warning("feedback cannot be kept at %s: %s", self._path, error.strerror)
                self._refused = True
                return False
            self._refused = False
            return True

    async def keep(self) -> None:
        """Write after each step until cancelled."""
        while True:
            await asyncio.sleep(self._corrected.feedback.settings.step_s)
            await self.write()


def feedback_file(path: Path | None, desk: FlowHooks | None, clock: Callable[[], float]) -> FeedbackFile | None:
    """Keeps the feedback of a flow control and goes on where the last process was; ``None`` = nothing is kept."""
    if path is None or not isinstance(desk, FlowDesk) or desk.corrected is None:
        return None
    file = FeedbackFile(path, desk.corrected, clock)
    file.read()
    return file
