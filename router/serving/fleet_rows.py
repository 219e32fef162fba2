"""Endpoints that come, go and restart, as rows of the endpoint table.

An endpoint keeps its row while it lives. One that leaves frees its row, one that comes takes a free row or makes
the table grow, one that restarted (another incarnation) keeps its row and loses all that was known about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from data.errors import InputError
from router.endpoints import VACANT, EndpointSpec, EndpointTable
from router.leases import LeaseBook


@dataclass(frozen=True, slots=True)
class LiveEndpoint:
    """One engine instance as the fleet knows it now.

    Attributes:
        address: Where callers send requests, such as ``http://10.0.0.7:8000``.
        incarnation: Any text that changes when the process behind the endpoint does.
        ready: Whether it takes requests as soon as it is known; else once a probe has passed.
        draining: No new requests.
        kv_events: Its engine tells what it caches; without, the router guesses from its own dispatches.
    """

    spec: EndpointSpec
    address: str = ""
    incarnation: str = ""
    ready: bool = True
    draining: bool = False
    kv_events: bool = False

    @property
    def endpoint_id(self) -> str:
        """Its id."""
        return self.spec.endpoint_id


class RowIndex(Protocol):
    """The part of the prefix index that has rows."""

    def ensure_rows(self, rows: int) -> None:
        """Have at least as many rows."""
        ...

    def cleared(self, row: int) -> None:
        """Forget what the row held."""
        ...

    def set_capacity(self, row: int, blocks: int) -> None:
        """Blocks that the row's cache holds; bounds the guess."""
        ...


@dataclass(frozen=True, slots=True)
class RowChanges:
    """What applying a list of endpoints did, by endpoint id."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    drain_changed: tuple[str, ...] = ()
    grown: bool = False

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.restarted or self.drain_changed)


class FleetRows:
    """Keeps a table, a lease book and a prefix index in step with the list of endpoints.

    Args:
        table: Changed in place.
        book: The accounting of the same table.
        index: The prefix index over the same rows.
        forget: Told of a row before what is known about it goes: the policy, open leases, health.
    """

    def __init__(
        self, table: EndpointTable, book: LeaseBook, index: RowIndex, forget: Callable[[int], None]
    ) -> None:
        self.table = table
        self._book = book
        self._index = index
        self._forget = forget
        self._live: dict[str, LiveEndpoint] = {}
        self._row: dict[str, int] = {}
        self._free = sorted((row for row, spec in enumerate(table.specs) if spec is VACANT), reverse=True)
        self._planned: frozenset[str] = frozenset()
        self.addresses: list[str] = [""] * len(table)
        """Address of each row."""

    def __len__(self) -> int:
        return len(self._live)

    def row(self, endpoint_id: str) -> int | None:
        """Row of an endpoint; ``None`` if it is not known."""
        return self._row.get(endpoint_id)

    def endpoints(self) -> list[LiveEndpoint]:
        """All known endpoints, in the order they came."""
        return list(self._live.values())

    def check(self, endpoints: Sequence[LiveEndpoint]) -> None:
        """Raise ``InputError`` if an id is empty or stands twice."""
        seen: set[str] = set()
        for endpoint in endpoints:
            if not endpoint.endpoint_id or endpoint.endpoint_id in seen:
                raise InputError(
                    "endpoint ids must be unique and not empty", field="endpoints", value=endpoint.endpoint_id
                )
            seen.add(endpoint.endpoint_id)

    def apply(self, endpoints: Sequence[LiveEndpoint]) -> RowChanges:
        """Make these the fleet's endpoints; what did not change is not touched.

        Raises:
            InputError: An id is empty or stands twice; then nothing has changed.
        """
        self.check(endpoints)
        wanted = {endpoint.endpoint_id: endpoint for endpoint in endpoints}
        removed = [name for name in self._live if name not in wanted]
        for name in removed:
            self._remove(name)
        added = [name for name in wanted if name not in self._live]
        grown = len(added) > len(self._free)
        if grown:
            self._grow(len(self.table) + len(added) - len(self._free))
        restarted = [name for name, live in self._live.items() if _is_another(live, wanted[name])]
        for name in restarted:
            self._replace(wanted[name])
        for name in added:
            self._add(wanted[name])
        before = {name: self._drains(live) for name, live in self._live.items()}
        self._live = wanted
        for name, live in wanted.items():
            self.addresses[self._row[name]] = live.address
        drained = self._set_draining(before)
        return RowChanges(tuple(added), tuple(removed), tuple(restarted), tuple(drained), grown)

    def drain(self, names: Iterable[str]) -> list[str]:
        """Endpoints that the plan takes out, beside those that drain by themselves; gives the changed ones."""
        before = {name: self._drains(live) for name, live in self._live.items()}
        self._planned = frozenset(names)
        return self._set_draining(before)

    def reset(self, row: int) -> None:
        """The engine behind the row restarted: forget its cache, its reports and what was in flight."""
        self._forget(row)
        self._book.drop_endpoint(row)
        self._index.cleared(row)

    def restarted(self, row: int) -> None:
        """As ``reset``; and the engine has to show anew that it is ready, if it had to at first."""
        self.reset(row)
        live = self._live.get(self.table.specs[row].endpoint_id)
        if live is not None:
            self.table.ready[row] = live.ready

    def _drains(self, live: LiveEndpoint) -> bool:
        return live.draining or live.endpoint_id in self._planned

    def _set_draining(self, before: dict[str, bool]) -> list[str]:
        changed = []
        for name, live in self._live.items():
            draining = self._drains(live)
            self.table.draining[self._row[name]] = draining
            if before.get(name, False) != draining:
                changed.append(name)
        return changed

    def _add(self, live: LiveEndpoint) -> None:
        row = self._free.pop()
        self._row[live.endpoint_id] = row
        self._live[live.endpoint_id] = live
        self._put(row, live)

    def _replace(self, live: LiveEndpoint) -> None:
        row = self._row[live.endpoint_id]
        self.reset(row)
        self._put(row, live)

    def _put(self, row: int, live: LiveEndpoint) -> None:
        spec = live.spec
        self.table.put(row, spec)
        self.table.ready[row] = live.ready
        if not live.kv_events:
            self._index.set_capacity(row, max(spec.kv_capacity_tokens // spec.prefix_block_tokens, 1))

    def _remove(self, name: str) -> None:
        row = self._row.pop(name)
        del self._live[name]
        self.reset(row)
        self.table.put(row, VACANT)
        self.addresses[row] = ""
        self._free.append(row)

    def _grow(self, rows: int) -> None:
        first = len(self.table)
        self.table.grow(rows)
        self._book.resized()
        self._index.ensure_rows(rows)
        self.addresses += [""] * (rows - first)
        self._free = [*range(rows - 1, first - 1, -1), *self._free]


def _is_another(known: LiveEndpoint, wanted: LiveEndpoint) -> bool:
    return known.spec != wanted.spec or known.incarnation != wanted.incarnation
