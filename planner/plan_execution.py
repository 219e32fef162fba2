"""Carries a sequence of plans out in a simulated run: who starts and drains when, and which shares hold.

The endpoints are those of all plans together. Moves begin when their plan says; a plan without such times, or
one that finds something else standing than it was made for, is put in order here by the greedy rule. What a plan
has not begun when the next one takes force is not begun at all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from data.errors import InputError, SettingError
from data.fleet.types import Fleet, Placed
from data.plan import Move, PlanDocument, TrafficShare
from data.plan_io import read_plan
from planner.fallback_order import greedy_moments
from planner.sim.changes import Drain, PlanSwitch, Start
from router.build import CatalogLookup, endpoint_specs
from router.endpoints import EndpointSpec

Place = tuple[str, str]
"""Site and configuration."""


@dataclass(frozen=True, slots=True)
class TimedPlan:
    """A plan and the moment at which it takes force, seconds on the trace's clock."""

    plan: PlanDocument
    at_s: float


@dataclass(frozen=True, slots=True)
class PlanExecution:
    """What ``planner.sim.run.simulate`` needs to carry plans out.

    Attributes:
        specs: The endpoints of all plans together.
        starts, drains, switches: Changes, in the order of their moments.
        gpus: GPUs of each (site, GPU type); ``None`` if nothing changes.
        shares: Traffic shares that hold at the start of the run.
    """

    specs: list[EndpointSpec]
    starts: tuple[Start, ...]
    drains: tuple[Drain, ...]
    switches: tuple[PlanSwitch, ...]
    gpus: Mapping[tuple[str, str], int] | None
    shares: tuple[TrafficShare, ...]


@dataclass(frozen=True, slots=True)
class _Moment:
    """One replica of a place that starts or drains, seconds after its plan took force."""

    place: Place
    start: bool
    begin_s: float
    lasts_s: float


def read_plans(path: str) -> list[TimedPlan]:
    """The plan of a file, or those of a folder or plan store in the order in which they take force, from 0 on.

    Raises:
        PlanFileError: A plan cannot be read.
        InputError: The folder holds none.
    """
    where = Path(path)
    if not where.is_dir():
        return [TimedPlan(read_plan(where), 0.0)]
    inside = where / "plans" if (where / "plans").is_dir() else where
    plans = [read_plan(file) for file in sorted(inside.glob("*.json"))]
    if not plans:
        raise InputError("no plan in the folder", source=path, expected="plan files (*.json)")
    begins = [datetime.fromisoformat(plan.valid_from) for plan in plans]
    order = sorted(range(len(plans)), key=lambda k: begins[k])
    first = begins[order[0]]
    return [TimedPlan(plans[k], (begins[k] - first).total_seconds()) for k in order]


def standing(fleet: Fleet, catalog: CatalogLookup, placed: Sequence[Placed]) -> PlanExecution:
    """Nothing changes: this placement stands throughout."""
    return PlanExecution(endpoint_specs(fleet, catalog, placed), (), (), (), None, ())


def plan_execution(
    fleet: Fleet,
    catalog: CatalogLookup,
    plans: Sequence[TimedPlan],
    before: Sequence[Placed] | None = None,
    *,
    time_scale: float = 1.0,
) -> PlanExecution:
    """The changes that carry the plans out.

    Args:
        fleet: The fleet; names of the plans were checked against it.
        catalog: Load times.
        plans: In the order of their moments.
        before: What stands when the run begins; ``None`` = what the first plan places.
        time_scale: Factor on load times and on the moments of moves, for a compressed clock (above 0).

    Raises:
        SettingError: The plans are not in order, or the scale is not above 0.
    """
    if not time_scale > 0:
        raise SettingError("out of range", field="time_scale", value=time_scale, expected="above 0")
    if any(later.at_s < earlier.at_s for earlier, later in pairwise(plans)):
        raise SettingError("plans out of order", field="plans", expected="rising moments")
    rest = list(plans)
    if before is None:
        first = rest.pop(0).plan
        before, shares = placed_by(first), first.shares
    else:
        shares = ()
    script = _Script(fleet, catalog, before, time_scale)
    for k, timed in enumerate(rest):
        until_s = rest[k + 1].at_s if k + 1 < len(rest) else float("inf")
        script.carry_out(placed_by(timed.plan), timed.plan.moves, timed.at_s, until_s)
    return script.finish(shares, tuple(PlanSwitch(timed.at_s, timed.plan) for timed in rest))


def change_execution(
    fleet: Fleet,
    catalog: CatalogLookup,
    before: Sequence[Placed],
    after: Sequence[Placed],
    moves: Sequence[Move] = (),
    *,
    time_scale: float = 1.0,
) -> PlanExecution:
    """One change of placement, beginning at 0.

    Args:
        fleet, catalog: As for :func:`plan_execution`.
        before, after: What stands, and what is to stand.
        moves: The moves between the two with their moments; without them, or if they are others, the greedy rule.
        time_scale: Factor on load times and moments.
    """
    script = _Script(fleet, catalog, before, time_scale)
    script.carry_out(after, moves, 0.0, float("inf"))
    return script.finish((), ())


def placed_by(plan: PlanDocument) -> tuple[Placed, ...]:
    """What a plan places."""
    return tuple(Placed(row.site, row.config, row.replicas, row.prewarmed) for row in plan.replicas)


class _Script:
    """Changes written one plan after the other; rows of a place are numbered from 0, higher ones drain first."""

    def __init__(self, fleet: Fleet, catalog: CatalogLookup, before: Sequence[Placed], time_scale: float) -> None:
        self._fleet, self._catalog, self._scale = fleet, catalog, time_scale
        self._active: dict[Place, set[int]] = defaultdict(set)
        self._warm: Counter[Place] = Counter()
        for one in before:
            place = one.site, one.config
            first = len(self._active[place])
            self._active[place] |= set(range(first, first + one.replicas))
            self._warm[place] += one.prewarmed
        self._initial = {place: len(rows) for place, rows in self._active.items()}
        self._most: Counter[Place] = Counter(self._initial)
        self._starts: list[tuple[float, Place, int, float]] = []
        self._drains: list[tuple[float, Place, int, tuple[tuple[Place, int], ...]]] = []

    def carry_out(self, placed: Sequence[Placed], moves: Sequence[Move], from_s: float, until_s: float) -> None:
        """Add the moves of a plan in force from ``from_s`` that begin before ``until_s``."""
        change = self._change(placed)
        coming: dict[str, list[tuple[float, Place, int]]] = defaultdict(list)
        for moment in sorted(self._moments(moves, change), key=lambda m: (m.begin_s, not m.start, m.place)):
            at_s = from_s + moment.begin_s * self._scale
            if at_s >= until_s:
                continue
            model = self._fleet.config(moment.place[1]).model
            rows = self._active[moment.place]
            if moment.start:
                row = next(n for n in range(len(rows) + 1) if n not in rows)
                rows.add(row)
                self._most[moment.place] = max(self._most[moment.place], row + 1)
                self._starts.append((at_s, moment.place, row, self._load_s(moment.place)))
                coming[model].append((moment.begin_s + moment.lasts_s, moment.place, row))
            else:
                row = max(rows)
                rows.remove(row)
                after = tuple((place, n) for ready_s, place, n in coming[model] if ready_s <= moment.begin_s)
                self._drains.append((at_s, moment.place, row, after))
        self._warm = Counter({(one.site, one.config): one.prewarmed for one in placed})

    def finish(self, shares: tuple[TrafficShare, ...], switches: tuple[PlanSwitch, ...]) -> PlanExecution:
        """Everything with the row numbers of the endpoints."""
        union = [Placed(*place, count) for place, count in sorted(self._most.items()) if count]
        first: dict[Place, int] = {}
        for one in union:
            first[one.site, one.config] = sum(other.replicas for other in union[: len(first)])
        starts = tuple(Start(at_s, first[place] + row, load_s) for at_s, place, row, load_s in self._starts)
        drains = tuple(
            Drain(at_s, first[place] + row, tuple(first[other] + n for other, n in after))
            for at_s, place, row, after in self._drains
        )
        gpus = self._gpus() if starts or drains else None
        return PlanExecution(
            endpoint_specs(self._fleet, self._catalog, union), starts, drains, switches, gpus, shares
        )

    def _change(self, placed: Sequence[Placed]) -> dict[Place, int]:
        wanted: Counter[Place] = Counter()
        for one in placed:
            wanted[one.site, one.config] += one.replicas
        places = sorted(wanted.keys() | self._active.keys())
        change = {place: wanted[place] - len(self._active[place]) for place in places}
        return {place: count for place, count in change.items() if count}

    def _moments(self, moves: Sequence[Move], change: Mapping[Place, int]) -> Iterable[_Moment]:
        """When each replica begins: as the plan says, if it was made for what stands; else by the greedy rule."""
        if not change:
            return ()
        stated = {(move.site, move.config): move.change for move in moves}
        if stated == change and all(move.begin_s for move in moves):
            return [
                _Moment((move.site, move.config), move.change > 0, begin_s, move.lasts_s)
                for move in moves
                for begin_s in move.begin_s
            ]
        counts = {place: len(rows) for place, rows in self._active.items()}
        found = greedy_moments(self._fleet, self._load_s_unscaled, counts, change)
        return [_Moment(place, start, float(begin), float(lasts)) for place, start, begin, lasts in found]

    def _load_s_unscaled(self, place: Place) -> float:
        config = self._fleet.config(place[1])
        model = self._fleet.model(config.model)
        facts = self._catalog.facts(model.catalog, config.gpu_type, config.tensor_parallel)
        return facts.warm_load_s if self._warm[place] else facts.load_s

    def _load_s(self, place: Place) -> float:
        return self._load_s_unscaled(place) * self._scale

    def _gpus(self) -> dict[tuple[str, str], int]:
        """GPUs of the fleet's pools, or what stands there at first, if that is more."""
        used: Counter[tuple[str, str]] = Counter()
        for (site, name), count in self._initial.items():
            config = self._fleet.config(name)
            used[site, config.gpu_type] += count * config.tensor_parallel
        pools = {(pool.site, pool.gpu_type): pool.count - pool.reserved_gpus for pool in self._fleet.pools}
        return {pool: max(count, used[pool]) for pool, count in pools.items()}
