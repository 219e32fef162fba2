"""Planned changes during a run: replicas that start, replicas that drain, plans that take force."""

from __future__ import annotations

from dataclasses import dataclass

from data.errors import SettingError
from data.plan import PlanDocument


@dataclass(frozen=True, slots=True)
class Start:
    """A replica is started.

    An endpoint whose first change is a start does not exist before it.

    Attributes:
        at_s: Moment of the start command, seconds on the trace's clock.
        endpoint: Row number.
        load_s: From the command to ready, the engine's own warm-up included; the cache is empty then. ``None`` =
            the ``load_s`` of its ``EndpointSpec``.
    """

    at_s: float
    endpoint: int
    load_s: float | None = None

    def __post_init__(self) -> None:
        _check_moment(self.at_s)
        if self.load_s is not None and not self.load_s >= 0:
            raise SettingError("change out of range", field="load_s", value=self.load_s, expected="0 or more")


@dataclass(frozen=True, slots=True)
class Drain:
    """A replica gets no new work from ``at_s`` on, finishes what it has, and gives its GPUs back.

    ``after`` are endpoints that replace it: while one of them waits for GPUs or loads, the drain does not begin.
    """

    at_s: float
    endpoint: int
    after: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _check_moment(self.at_s)


@dataclass(frozen=True, slots=True)
class PlanSwitch:
    """A plan takes force: from ``at_s`` on its traffic shares hold. Replicas change by starts and drains."""

    at_s: float
    plan: PlanDocument

    def __post_init__(self) -> None:
        _check_moment(self.at_s)


def _check_moment(at_s: float) -> None:
    if not at_s >= 0:
        raise SettingError("change out of range", field="at_s", value=at_s, expected="0 or more")
