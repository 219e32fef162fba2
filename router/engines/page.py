"""Read the wanted samples of a page in the Prometheus text format, and pass over everything else.

Consecutive pages of one engine have the same lines but for their numbers. So the reader remembers on which lines
the wanted samples stood; a page with as many lines and the same text before each number is read at those lines
only. Any other page, and every ``FULL_EVERY``-th one, is looked through line by line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite

from router.engines.aliases import EngineAdapter, Group, Reading, Series, combine

FULL_EVERY = 16
"""A wanted series that takes the exact place of another line is found after at most so many pages."""

_LABEL = re.compile(rb'[ \t]*([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(,?)')
_ESCAPES = {b"\\\\": b"\\", b'\\"': b'"', b"\\n": b"\n"}
_ESCAPED = re.compile(rb'\\[\\"n]')


@dataclass(frozen=True, slots=True)
class _Slot:
    """A line with a wanted sample: everything before its number, and where the number goes."""

    line: int
    head: bytes
    targets: tuple[tuple[Series, Group], ...]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where everything stood on a page."""

    lines: int
    slots: tuple[_Slot, ...]
    constants: tuple[tuple[_Slot, tuple[tuple[Series, Group, float], ...]], ...]
    bad_heads: int


class TextPageReader:
    """Reads the pages of one endpoint, one after the other.

    Args:
        adapter: What is wanted.
    """

    def __init__(self, adapter: EngineAdapter) -> None:
        self._adapter = adapter
        self._wanted: dict[bytes, list[Series]] = {}
        for row in adapter.rows:
            for alias in row.aliases:
                for series in (alias.of, alias.over):
                    if series is not None:
                        known = self._wanted.setdefault(series.name.encode(), [])
                        if series not in known:
                            known.append(series)
        self._ignored = frozenset(adapter.shard_labels)
        self._parts = frozenset(adapter.part_labels)
        self._layout: _Layout | None = None
        self._by_layout = 0
        self.full_reads = 0
        """Pages that were looked through line by line."""

    def read(self, page: bytes) -> Reading:
        """The quantities on a page. Never fails: what cannot be read is a bad sample or missing."""
        lines = page.split(b"\n")
        layout = self._layout
        if layout is None or self._by_layout >= FULL_EVERY or not _fits(layout, lines):
            layout = self._layout = self._scan(lines)
            self._by_layout = 0
            self.full_reads += 1
        self._by_layout += 1
        return self._sum_up(layout, lines)

    def _sum_up(self, layout: _Layout, lines: list[bytes]) -> Reading:
        samples: dict[Series, dict[Group, float]] = {}
        bad = layout.bad_heads
        for slot in layout.slots:
            value = _number(lines[slot.line][len(slot.head) :])
            if value is None:
                bad += 1
                continue
            for series, group in slot.targets:
                _keep(samples, series, group, value)
        for _, constants in layout.constants:
            for series, group, value in constants:
                _keep(samples, series, group, value)
        return combine(self._adapter, samples, bad)

    def _scan(self, lines: list[bytes]) -> _Layout:
        slots: list[_Slot] = []
        constants: list[tuple[_Slot, tuple[tuple[Series, Group, float], ...]]] = []
        bad = 0
        for number, line in enumerate(lines):
            if not line or line[0] == 35:  # a comment
                continue
            brace = line.find(b"{")
            name = line[:brace].strip() if brace >= 0 else line.split(None, 1)[0] if line.strip() else b""
            wanted = self._wanted.get(name)
            if wanted is None:
                continue
            head = _head(line, brace, len(line) - len(line.lstrip()) + len(name))
            if head is None:
                bad += 1
                continue
            text, labels = head
            slot = _Slot(number, text, self._targets(wanted, labels))
            if slot.targets:
                slots.append(slot)
            fixed, unreadable = self._constants(wanted, labels)
            bad += unreadable
            if fixed:
                constants.append((slot, fixed))
        return _Layout(len(lines), tuple(slots), tuple(constants), bad)

    def _targets(self, wanted: list[Series], labels: dict[str, str]) -> tuple[tuple[Series, Group], ...]:
        return tuple((s, self._group(s, labels)) for s in wanted if not s.value_label and self._has(s, labels))

    def _constants(
        self, wanted: list[Series], labels: dict[str, str]
    ) -> tuple[tuple[tuple[Series, Group, float], ...], int]:
        """Numbers that stand in labels: the same as long as the text of the line is. And how many are bad."""
        found, bad = [], 0
        for series in wanted:
            if series.value_label in labels and self._has(series, labels):
                value = _number(labels[series.value_label].encode())
                if value is None:
                    bad += 1
                else:
                    found.append((series, self._group(series, labels), value))
        return tuple(found), bad

    def _has(self, series: Series, labels: dict[str, str]) -> bool:
        if any(labels.get(part) for part in self._parts):
            return False
        return all(labels.get(key) == value for key, value in series.labels)

    def _group(self, series: Series, labels: dict[str, str]) -> Group:
        fixed = {key for key, _ in series.labels} | self._ignored | self._parts
        return tuple(sorted((key, value) for key, value in labels.items() if key not in fixed))


def _fits(layout: _Layout, lines: list[bytes]) -> bool:
    if len(lines) != layout.lines:
        return False
    for slot in layout.slots:
        if not lines[slot.line].startswith(slot.head):
            return False
    return all(lines[slot.line].startswith(slot.head) for slot, _ in layout.constants)


def _keep(samples: dict[Series, dict[Group, float]], series: Series, group: Group, value: float) -> None:
    """Series of one group are shards that repeat each other: the greatest counts."""
    ranks = samples.setdefault(series, {})
    before = ranks.get(group)
    if before is None or value > before:
        ranks[group] = value


def _head(line: bytes, brace: int, name_end: int) -> tuple[bytes, dict[str, str]] | None:
    """Everything before the number, and the labels; ``None`` if that part is not well formed."""
    if brace < 0:
        return line[: _skip_blanks(line, name_end)], {}
    labels: dict[str, str] = {}
    at, comma = brace + 1, b","
    while True:
        match = _LABEL.match(line, at)
        if match is None:
            break
        if not comma:
            return None
        key, value, comma = match.groups()
        labels[key.decode()] = _ESCAPED.sub(lambda m: _ESCAPES[m.group()], value).decode("utf-8", "replace")
        at = match.end()
    at = _skip_blanks(line, at)
    if line[at : at + 1] != b"}":
        return None
    return line[: _skip_blanks(line, at + 1)], labels


def _skip_blanks(line: bytes, at: int) -> int:
    while line[at : at + 1] in (b" ", b"\t"):
        at += 1
    return at


def _number(text: bytes) -> float | None:
    """The number of a sample; a time stamp may follow it. ``None`` for NaN, infinity and what is no number."""
    try:
        value = float(text)
    except ValueError:
        parts = text.split()
        if len(parts) != 2:
            return None
        try:
            value = float(parts[0])
            int(parts[1])
        except ValueError:
            return None
    return value if isfinite(value) and b"_" not in text else None
