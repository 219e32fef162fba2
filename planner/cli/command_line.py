"""The command line that was typed, for a report that says how it can be made again."""

from __future__ import annotations

import shlex
import sys


def command_line() -> str:
    """``tokenfleet`` and its arguments, quoted so that a shell reads them the same way."""
    return shlex.join(["tokenfleet", *sys.argv[1:]])
