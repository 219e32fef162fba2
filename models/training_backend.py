"""Where training samples are read, held and fitted: in this process, or on many workers.

A backend reads a log in parts and gives a stock. Of the rows the stock tells only their clock and run, which is
all that the split needs; the rows themselves stay where they were read until they are fitted or taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from data.errors import ModelError
from data.types import FloatArray, IntArray
from models.base import BoolArray, CategoryCodes
from models.fit_shard import Fitted, ShardSettings, fit_shard
from models.samples import Samples, join_samples


@dataclass(frozen=True, slots=True)
class PartRead:
    """What one part of a log gave.

    Attributes:
        samples: Its rows; may be empty.
        skipped: Log files that could not be used, with the reason.
    """

    samples: Samples
    skipped: dict[str, str]


ReadPart = Callable[[], PartRead]
"""Reads one part; picklable where workers are other processes. All parts have the same category codes."""


@dataclass(frozen=True, slots=True)
class StockFacts:
    """What is known of all rows of a stock, wherever they are.

    Attributes:
        decided_s, run: Of each row, in the order of the parts.
        censored: Rows without a first token.
        codes: Category codes of the rows.
        dropped: Rows left out, by reason.
        skipped: Log files that could not be used, with the reason.
    """

    decided_s: FloatArray
    run: IntArray
    censored: int
    codes: CategoryCodes
    dropped: dict[str, int]
    skipped: dict[str, str]


class SampleStock(Protocol):
    """Rows that a backend holds."""

    @property
    def facts(self) -> StockFacts:
        """What is known of the rows here."""
        ...

    def fit(self, rows: BoolArray, settings: ShardSettings) -> Fitted:
        """Fit on the rows of a mask; the same rows and settings give the same result from the same backend."""
        ...

    def take(self, rows: BoolArray) -> Samples:
        """The rows of a mask, brought here, in order."""
        ...


class TrainingBackend(Protocol):
    """Reads parts of a log and holds their samples."""

    def read(self, parts: Sequence[ReadPart], on_part: Callable[[], None] = lambda: None) -> SampleStock:
        """Read all parts; ``on_part`` is called after each.

        Raises:
            ModelError: No part has a usable row (reason ``data``).
        """
        ...


class LocalStock:
    """Rows in this process."""

    def __init__(self, samples: Samples, skipped: dict[str, str] | None = None) -> None:
        self._samples = samples
        self.facts = StockFacts(
            decided_s=samples.decided_s,
            run=samples.run,
            censored=int(np.isnan(samples.ttft_s).sum()),
            codes=samples.codes,
            dropped=samples.dropped,
            skipped=skipped or {},
        )

    def fit(self, rows: BoolArray, settings: ShardSettings) -> Fitted:
        """See :class:`SampleStock`."""
        return fit_shard(self._samples.take(rows), settings)

    def take(self, rows: BoolArray) -> Samples:
        """See :class:`SampleStock`."""
        return self._samples.take(rows)


class LocalBackend:
    """Reads one part after the other into this process."""

    def read(self, parts: Sequence[ReadPart], on_part: Callable[[], None] = lambda: None) -> LocalStock:
        """See :class:`TrainingBackend`."""
        found: list[Samples] = []
        skipped: dict[str, str] = {}
        dropped: dict[str, int] = {}
        for part in parts:
            read = part()
            found.append(read.samples)
            skipped |= read.skipped
            add_counts(dropped, read.samples.dropped)
            on_part()
        check_rows(sum(len(part) for part in found), dropped)
        return LocalStock(join_samples(found, found[0].codes, dropped), skipped)


def add_counts(counts: dict[str, int], more: dict[str, int]) -> None:
    """Add ``more`` to ``counts``, reason by reason."""
    for reason, count in more.items():
        counts[reason] = counts.get(reason, 0) + count


def check_rows(rows: int, dropped: dict[str, int]) -> None:
    """Raise ``ModelError`` (reason ``data``) unless there is a row."""
    if not rows:
        raise ModelError(f"the log holds no usable latency sample; left out: {dropped}", reason="data")
