"""Gives requests a workload class by the length of their prompt, for traces that name none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from data.errors import SettingError
from data.traces import batches
from data.traces.batches import TextColumn
from data.types import TraceBatch


@dataclass(frozen=True, slots=True)
class LengthClasses:
    """Classes from short prompts to long ones.

    Attributes:
        names: One class more than there are limits.
        limits_tokens: A prompt shorter than ``limits_tokens[i]`` (and not than the one before) is of class
            ``names[i]``; ascending, above 0.
    """

    names: tuple[str, ...]
    limits_tokens: tuple[int, ...]

    def __post_init__(self) -> None:
        limits = self.limits_tokens
        if len(self.names) != len(limits) + 1 or not limits:
            raise SettingError(
                "classes and limits do not fit", value=self.names, expected="a limit between classes"
            )
        if limits[0] < 1 or any(a >= b for a, b in pairwise(limits)):
            raise SettingError("limits are not ascending", value=limits, expected="token counts, ascending")


def class_by_length(rows: Iterable[TraceBatch], rule: LengthClasses) -> Iterator[TraceBatch]:
    """The same requests, each with the class of its prompt length; classes that the trace names are replaced."""
    limits = np.array(rule.limits_tokens)
    for batch in rows:
        codes = np.searchsorted(limits, batch.input_tokens, side="right").astype(np.int32)
        yield batches.with_columns(batch, workload_class=TextColumn(codes, rule.names))
