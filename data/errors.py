"""The errors of TokenFleet, one class for each thing a caller would do differently.

::

    TokenFleetError
    ├── InputError            what the user gave is wrong; exit code 2
    │   ├── DocumentError     a document, with all its faults
    │   │   ├── FleetFileError    the fleet file
    │   │   └── PlanFileError     a plan document
    │   ├── TraceError        a trace that cannot be read at all (single bad rows are counted, not raised)
    │   ├── LogError          the decision and outcome log
    │   └── SettingError      a setting out of its range
    ├── InfeasibleError       no plan can keep every hard rule; exit code 3
    ├── LeaseError            work in flight was released twice or never charged; exit code 1
    ├── ModelError            a latency model cannot be trained, loaded or trusted; exit code 1
    └── SolverError           a solver died or answered nonsense; exit code 1
"""

from __future__ import annotations

from typing import Any


class TokenFleetError(Exception):
    """Base of every error that TokenFleet raises on purpose."""

    exit_code = 1


class InputError(TokenFleetError):
    """Input that cannot be used: names the place, the value and what would be right.

    Args:
        problem: What is wrong, in one clause.
        source: File or option the value came from.
        line: Line in that file, counted from 1.
        field: Dotted path of the field, such as ``sites[2].zone``.
        value: The offending value (shown with ``repr``, cut to 80 characters).
        expected: What would be right.
    """

    exit_code = 2

    def __init__(
        self,
        problem: str,
        *,
        source: str | None = None,
        line: int | None = None,
        field: str | None = None,
        value: object = None,
        expected: str | None = None,
    ) -> None:
        self.problem = problem
        self.source = source
        self.line = line
        self.field = field
        self.value = value
        self.expected = expected
        super().__init__(self.render())

    def render(self) -> str:
        """One line: ``file:line: field: problem (got VALUE); expected …``."""
        place = ":".join(str(part) for part in (self.source, self.line) if part is not None)
        head = ": ".join(part for part in (place, self.field, self.problem) if part)
        got = f" (got {_short(self.value)})" if self.value is not None else ""
        want = f"; expected {self.expected}" if self.expected else ""
        return head + got + want


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


class DocumentError(InputError):
    """A document with one or more faults. ``problems`` holds them all, this one first."""

    def __init__(self, problem: str, **place: Any) -> None:
        super().__init__(problem, **place)
        self.problems: tuple[InputError, ...] = (self,)


class FleetFileError(DocumentError):
    """The fleet file is wrong."""


class TraceError(InputError):
    """The trace as a whole cannot be read."""


class PlanFileError(DocumentError):
    """The plan document is wrong."""


class LogError(InputError):
    """The decision and outcome log cannot be read or written."""


class SettingError(InputError):
    """A setting is out of its range."""


class InfeasibleError(TokenFleetError):
    """No plan can keep every hard rule; the message says which promises collide."""

    exit_code = 3


class LeaseError(TokenFleetError):
    """A lease on in-flight work is not open: it was closed, expired or never opened."""


class ModelError(TokenFleetError):
    """A latency model cannot be trained, loaded or trusted.

    ``reason`` is one word for counters: ``checksum``, ``schema``, ``probe``, ``format``, ``missing``, ``checks``,
    ``data`` or ``invalid``.
    """

    def __init__(self, message: str, *, reason: str = "invalid") -> None:
        self.reason = reason
        super().__init__(message)


class SolverError(TokenFleetError):
    """A solver failed: it died, ran past its limit, or its answer did not verify."""
