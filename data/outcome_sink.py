"""Where decisions and outcomes go: the port that the simulator and the router write to."""

from __future__ import annotations

from typing import Any, Protocol


class RecordSink(Protocol):
    """Takes decision and outcome rows as dictionaries keyed by the columns of ``data.log.schema``."""

    def decision(self, row: dict[str, Any]) -> None:
        """Record one decision."""
        ...

    def outcome(self, row: dict[str, Any]) -> None:
        """Record how one attempt ended."""
        ...
