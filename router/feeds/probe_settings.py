"""How an engine is asked for its first completion."""

from __future__ import annotations

import re
from dataclasses import dataclass

from data.errors import SettingError
from data.fleet.addresses import PATH_PATTERN, PATH_TEXT


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """One tiny completion at a time for each endpoint that is not ready.

    Attributes:
        path: Path of the completions API; one that ends in ``/chat/completions`` is asked in the form of a chat.
        deadline_s: A probe that takes longer has failed (0.1 to 600).
        concurrency: Probes at a time, of all endpoints (1 to 1,024).
        first_pause_s: Pause after the first failure (0.05 to 60); each further one is twice as long.
        longest_pause_s: Longest pause (``first_pause_s`` to 600).
        key_file: File with the key that the engines want as bearer token; empty = none.
    """

    path: str = "/v1/completions"
    deadline_s: float = 10.0
    concurrency: int = 32
    first_pause_s: float = 0.5
    longest_pause_s: float = 5.0
    key_file: str = ""

    def __post_init__(self) -> None:
        if re.fullmatch(PATH_PATTERN, self.path) is None:
            raise SettingError("not a path", field="path", value=self.path, expected=PATH_TEXT)
        _in_range("deadline_s", self.deadline_s, 0.1, 600.0)
        _in_range("concurrency", self.concurrency, 1, 1024)
        _in_range("first_pause_s", self.first_pause_s, 0.05, 60.0)
        _in_range("longest_pause_s", self.longest_pause_s, self.first_pause_s, 600.0)


def _in_range(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise SettingError("setting out of range", field=name, value=value, expected=f"{least:g} to {most:g}")
