"""The public logs that can be loaded by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from data.errors import SettingError
from models.public_logs import adapters, aibrix, burstgpt, llmservingsim, silicon, vtc
from models.public_logs.log import PublicLog

SOURCES: dict[str, Callable[[Path], PublicLog]] = {
    "adapters": adapters.load,
    "aibrix": aibrix.load,
    "burstgpt": burstgpt.load,
    "llmservingsim": llmservingsim.load,
    "silicon": silicon.load,
    "vtc": vtc.load,
}
"""Loader by name; each takes the source's folder (or, where it is one file, that file)."""


def load_public_log(source: str, path: Path) -> PublicLog:
    """Load a public log; step times are NaN where no catalog knows them (see ``prior_fit``).

    Raises:
        SettingError: The source is not known.
        LogError: The file cannot be read, lacks a column, or holds no usable row.
    """
    if source not in SOURCES:
        raise SettingError("unknown public log", value=source, expected=", ".join(SOURCES))
    if not path.exists():
        raise SettingError("no such file or folder", value=str(path), expected=f"the data of {source}")
    return SOURCES[source](path)
