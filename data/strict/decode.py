"""Plain values (dict, list, text, number) to frozen dataclasses, driven by the classes' own type hints.

Nothing is guessed and nothing is dropped: a value of the wrong type, a missing or unknown key, a number out of
its range each become one ``Fault``, and reading goes on so that one pass shows them all.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from data.strict.faults import Fault, Path, nearest, one_of
from data.strict.rules import ANY, Rule, RuleBook

ANNOTATION_PREFIX = "x-"


class _Failed:
    """Marks a value that could not be read; its faults are in the list."""


FAILED = _Failed()


@functools.cache
def field_hints(owner: type) -> dict[str, Any]:
    """Resolved type hints of a dataclass, by field name."""
    hints = typing.get_type_hints(owner)
    return {f.name: hints[f.name] for f in dataclasses.fields(owner)}


@dataclass(slots=True)
class Decoder:
    """One reading of one document.

    Attributes:
        book: Rules of the classes.
        allow_implausible: Whether numbers outside their plausible range pass.
        faults: What was found wrong so far.
    """

    book: RuleBook
    allow_implausible: bool = False
    faults: list[Fault] = field(default_factory=list)

    def read(self, owner: type, value: object, path: Path = ()) -> object:
        """An ``owner`` from a mapping, or ``FAILED``."""
        if not isinstance(value, dict):
            return self._wrong(path, value, "a mapping with keys")
        by_key = {self.book.key(owner, name): name for name in field_hints(owner)}
        for key in value:
            if key not in by_key and not (self.book.annotations and str(key).startswith(ANNOTATION_PREFIX)):
                close = nearest(key, by_key)
                expected = f"{close!r}?" if close else "one of " + ", ".join(by_key)
                self.faults.append(Fault((*path, str(key)), "unknown key", expected=expected))
        found: dict[str, object] = dict(self.book.absent.get(owner, {}))
        for item in dataclasses.fields(owner):
            key = self.book.key(owner, item.name)
            if key in value:
                rule = self.book.rule(owner, item.name)
                found[item.name] = self._value(field_hints(owner)[item.name], value[key], (*path, key), rule)
            elif self.book.required(owner, item):
                expected = hint_text(field_hints(owner)[item.name], self.book.rule(owner, item.name))
                self.faults.append(Fault((*path, key), "missing key", expected=expected))
                found[item.name] = FAILED
        if any(part is FAILED for part in found.values()):
            return FAILED
        return owner(**found)

    def _value(self, hint: Any, value: object, path: Path, rule: Rule) -> object:
        origin = typing.get_origin(hint)
        if origin in (types.UnionType, typing.Union):
            return None if value is None else self._value(_without_none(hint), value, path, rule)
        if origin is typing.Literal:
            choices = [str(choice) for choice in typing.get_args(hint)]
            return value if value in choices else self._wrong(path, value, one_of(value, choices))
        if origin is tuple:
            return self._list(typing.get_args(hint)[0], value, path, rule)
        if origin is dict:
            return self._table(typing.get_args(hint)[1], value, path, rule)
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            return self.read(hint, value, path)
        if isinstance(hint, type) and issubclass(hint, enum.StrEnum):
            choices = [str(member.value) for member in hint]
            return hint(value) if value in choices else self._wrong(path, value, one_of(value, choices))
        read: Callable[[object, Path, Rule], object] = _SCALARS[hint].__get__(self)
        return read(value, path, rule)

    def _list(self, hint: Any, value: object, path: Path, rule: Rule) -> object:
        if not isinstance(value, list):
            return self._wrong(path, value, f"a list, each entry {hint_text(hint, rule)}")
        items = [self._value(hint, item, (*path, i), rule) for i, item in enumerate(value)]
        return FAILED if any(item is FAILED for item in items) else tuple(items)

    def _table(self, hint: Any, value: object, path: Path, rule: Rule) -> object:
        if not isinstance(value, dict):
            return self._wrong(path, value, f"a mapping of names, each {hint_text(hint, rule)}")
        items = {str(key): self._value(hint, item, (*path, str(key)), rule) for key, item in value.items()}
        return FAILED if any(item is FAILED for item in items.values()) else items

    def _text(self, value: object, path: Path, rule: Rule) -> object:
        if not isinstance(value, str):
            hint = " (quote it)" if isinstance(value, bool | int | float) else ""
            return self._wrong(path, value, hint_text(str, rule) + hint)
        if not rule.matches(value):
            return self._wrong(path, value, hint_text(str, rule), "not allowed here")
        return value

    def _flag(self, value: object, path: Path, rule: Rule) -> object:
        return value if isinstance(value, bool) else self._wrong(path, value, hint_text(bool, rule))

    def _whole(self, value: object, path: Path, rule: Rule) -> object:
        if not isinstance(value, int) or isinstance(value, bool):
            return self._wrong(path, value, hint_text(int, rule))
        return value if self._number_ok(value, path, rule) else FAILED

    def _number(self, value: object, path: Path, rule: Rule) -> object:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return self._wrong(path, value, hint_text(float, rule))
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            return self._wrong(path, value, hint_text(float, rule), "not a finite number")
        return number if self._number_ok(number, path, rule) else FAILED

    def _number_ok(self, value: float, path: Path, rule: Rule) -> bool:
        if not rule.in_range(value):
            self._wrong(path, value, rule.range_text(), "out of range")
            return False
        meant = None if self.allow_implausible else rule.plausibility(value)
        if meant is not None:
            self._wrong(path, value, meant + " (allow_implausible: true accepts it)", "implausible value")
            return False
        return True

    def _wrong(self, path: Path, value: object, expected: str, problem: str = "wrong value") -> object:
        shown = "null" if value is None else value
        self.faults.append(Fault(path, problem, value=shown, expected=expected))
        return FAILED


_SCALARS: dict[Any, Callable[..., object]] = {
    str: Decoder._text,
    bool: Decoder._flag,
    int: Decoder._whole,
    float: Decoder._number,
}


def _without_none(hint: Any) -> Any:
    """The type inside ``X | None``."""
    (inner,) = [arg for arg in typing.get_args(hint) if arg is not type(None)]
    return inner


def hint_text(hint: Any, rule: Rule = ANY) -> str:
    """What a value of this type looks like, in words."""
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        return hint_text(_without_none(hint), rule)
    if origin is typing.Literal:
        return "one of " + ", ".join(map(str, typing.get_args(hint)))
    if origin is tuple:
        return "a list"
    if hint is str:
        return rule.text or "a text"
    if hint is bool:
        return "true or false"
    if hint is int:
        return f"a whole number, {rule.range_text()}"
    if hint is float:
        return f"a number, {rule.range_text()}"
    if isinstance(hint, type) and issubclass(hint, enum.StrEnum):
        return "one of " + ", ".join(str(member.value) for member in hint)
    return "a mapping with keys"
