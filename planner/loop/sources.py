"""Where the loop sees demand and service: small picklable values, read in the step's own process."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from data.errors import TokenFleetError
from data.fleet.types import Fleet
from planner.demand import DemandTable
from planner.demand_file import read_demand
from planner.loop.service_level import ServiceLevel
from planner.loop.settled_demand import combined
from planner.loop.shadow import Window


@dataclass(frozen=True, slots=True)
class LastWindow:
    """Which requests to try a plan on.

    Attributes:
        until_s: End of the window, seconds since the epoch.
        window_s: Its length.
        most_requests: Requests at most.
        seeds: Runs.
    """

    until_s: float
    window_s: float
    most_requests: int
    seeds: int


class DemandSource(Protocol):
    """Gives the demand of the coming period, and how the fleet serves. Every call reads anew."""

    @property
    def label(self) -> str:
        """What it is, for people."""
        ...

    def demand(self, fleet: Fleet, now_s: float, period_s: float) -> DemandTable:
        """Demand of the period that begins now.

        Raises:
            TokenFleetError, OSError: It does not answer, or says nothing that can be used.
        """
        ...

    def level(self, fleet: Fleet, since_s: float, now_s: float) -> ServiceLevel | None:
        """Service since then; ``None`` = it does not know. Raises as :meth:`demand`."""
        ...

    def requests(self, fleet: Fleet, window: LastWindow) -> Window | None:
        """Requests of the last window; ``None`` = it does not know them. Raises as :meth:`demand`."""
        ...


@dataclass(frozen=True, slots=True)
class FileSource:
    """A demand file that somebody else keeps up to date."""

    path: Path

    @property
    def label(self) -> str:
        """Its path."""
        return f"demand file {self.path}"

    def demand(self, fleet: Fleet, now_s: float, period_s: float) -> DemandTable:  # noqa: ARG002
        """What the file says now."""
        return read_demand(self.path, fleet)

    def level(self, fleet: Fleet, since_s: float, now_s: float) -> None:  # noqa: ARG002
        """A demand file does not know how the fleet serves."""
        return

    def requests(self, fleet: Fleet, window: LastWindow) -> None:  # noqa: ARG002
        """Nor does it know requests."""
        return


@dataclass(frozen=True, slots=True)
class Seen:
    """What all sources gave.

    Attributes:
        demand: ``None`` = no source answered.
        failed: Label and error of each source that did not.
    """

    demand: DemandTable | None
    failed: tuple[str, ...] = field(default=())


def seen_demand(sources: tuple[DemandSource, ...], fleet: Fleet, now_s: float, period_s: float) -> Seen:
    """The demand that all sources together tell; see :func:`planner.loop.settled_demand.combined`."""
    tables: list[DemandTable | None] = []
    failed: list[str] = []
    for source in sources:
        try:
            tables.append(source.demand(fleet, now_s, period_s))
        except (TokenFleetError, OSError) as error:
            tables.append(None)
            failed.append(f"{source.label}: {error}")
    return Seen(combined(tables, [f"no answer from {line}" for line in failed]), tuple(failed))


def seen_level(
    sources: tuple[DemandSource, ...], fleet: Fleet, since_s: float, now_s: float
) -> ServiceLevel | None:
    """Service since then, as the first source that knows it tells; ``None`` = nobody does."""
    for source in sources:
        try:
            level = source.level(fleet, since_s, now_s)
        except (TokenFleetError, OSError):
            continue
        if level is not None:
            return level
    return None
