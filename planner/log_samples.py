"""The training samples of logs, a window at a time, so that windows may be read wherever there is a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from data.log.reader import LogReader
from data.log.windows import Window, log_windows
from models.features import EndpointKind
from models.samples import KindKey, codes_of, table_samples
from models.training_backend import PartRead


@dataclass(frozen=True, slots=True)
class LogPart:
    """One window of one log; calling it reads the window.

    Attributes:
        root: Folder of the log; workers elsewhere find it under the same path.
        run: Number of the run that the log is.
        window: ``since_s <= decided_s < until_s``.
        kinds: Hardware by the names of the log.
    """

    root: Path
    run: int
    window: Window
    kinds: Mapping[KindKey, EndpointKind]

    def __call__(self) -> PartRead:
        """Read the window's decisions with their outcomes.

        Raises:
            LogError: The log cannot be read.
        """
        reader = LogReader(self.root)
        table = reader.window(*self.window)
        samples = table_samples(table, self.kinds, codes_of(self.kinds), self.run)
        return PartRead(samples, reader.report.skipped)


def log_parts(logs: Sequence[Path], kinds: Mapping[KindKey, EndpointKind], window: Window) -> list[LogPart]:
    """All windows of all logs, each log a run of its own.

    Raises:
        LogError: There is no log at one of the paths.
    """
    parts = []
    for run, root in enumerate(logs):
        LogReader(root)  # says so if there is no log
        parts += [LogPart(root, run, each, kinds) for each in log_windows(root, *window)]
    return parts
