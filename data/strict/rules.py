"""Rules of single fields: range, plausible range, pattern. One table drives reader, checks and JSON Schema."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._:/+-]{0,99}"
NAME_TEXT = "a name of letters, digits and . _ : / + -, starting with a letter or digit, at most 100 long"


@dataclass(frozen=True, slots=True)
class Rule:
    """What one field may hold.

    Attributes:
        minimum: Least value, itself allowed unless ``above`` is set.
        maximum: Greatest value, itself allowed.
        above: Whether ``minimum`` itself is excluded.
        plausible: Values outside are refused as a likely slip of unit, unless the document allows them.
        pattern: Regular expression that a text must match whole.
        text: What would be right, in words, for the pattern.
    """

    minimum: float | None = None
    maximum: float | None = None
    above: bool = False
    plausible: tuple[float, float] | None = None
    pattern: str | None = None
    text: str = ""

    def range_text(self) -> str:
        """The range in words, such as ``above 0`` or ``0 to 1``."""
        if self.minimum is None:
            return "any number" if self.maximum is None else f"at most {_plain(self.maximum)}"
        low = f"above {_plain(self.minimum)}" if self.above else _plain(self.minimum)
        if self.maximum is not None:
            return f"{low} to {_plain(self.maximum)}"
        return low if self.above else f"{low} or more"

    def in_range(self, value: float) -> bool:
        """Whether a number keeps the hard range."""
        if self.minimum is not None and (value < self.minimum or (self.above and value == self.minimum)):
            return False
        return self.maximum is None or value <= self.maximum

    def plausibility(self, value: float) -> str | None:
        """``None`` if plausible; else what would be, with the likely meaning when a factor of 1000 explains it."""
        if self.plausible is None:
            return None
        low, high = self.plausible
        if value == 0 or low <= value <= high:
            return None
        for factor in (1e3, 1e-3):
            meant = value * factor
            # A slip of unit lands well inside the range, not at its rim.
            if math.isfinite(meant) and low * 2 <= meant <= high / 2:
                return f"{_plain(low)} to {_plain(high)}; did you mean {meant:g}?"
        return f"{_plain(low)} to {_plain(high)}"

    def matches(self, text: str) -> bool:
        """Whether a text keeps the pattern."""
        return self.pattern is None or re.fullmatch(self.pattern, text) is not None


def _plain(number: float) -> str:
    """A bound as people write it: whole numbers in full."""
    return str(int(number)) if number == int(number) else f"{number:g}"


ANY = Rule()
NAME = Rule(pattern=NAME_PATTERN, text=NAME_TEXT)
POSITIVE = Rule(minimum=0, above=True)
NOT_NEGATIVE = Rule(minimum=0)
SHARE = Rule(minimum=0, maximum=1)


@dataclass(frozen=True, slots=True)
class RuleBook:
    """How a family of dataclasses is written in a document.

    Attributes:
        rules: Rules by class and field name; a field without one has only its type.
        keys: Field name to document key, by class, where they differ.
        absent: Value of a field whose key a document may leave out although the class has no default for it.
        annotations: Whether keys that start with ``x-`` are free for the user's own notes.
    """

    rules: Mapping[type, Mapping[str, Rule]]
    keys: Mapping[type, Mapping[str, str]] = field(default_factory=dict)
    absent: Mapping[type, Mapping[str, object]] = field(default_factory=dict)
    annotations: bool = False

    def required(self, owner: type, item: dataclasses.Field[Any]) -> bool:
        """Whether a document must give this field."""
        has_default = item.default is not dataclasses.MISSING or item.default_factory is not dataclasses.MISSING
        return not has_default and item.name not in self.absent.get(owner, {})

    def rule(self, owner: type, name: str) -> Rule:
        """The rule of a field."""
        return self.rules.get(owner, {}).get(name, ANY)

    def key(self, owner: type, name: str) -> str:
        """The document key of a field."""
        return self.keys.get(owner, {}).get(name, name)
