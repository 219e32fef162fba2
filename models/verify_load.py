"""Loads one model version in a process of its own: ``python -m models.verify_load FOLDER``.

Training ends with it: a model that cannot be loaded elsewhere, or answers its probe rows differently there, is not
published. Prints the version and exits 0, or prints the reason and exits 1.
"""

from __future__ import annotations

import sys
from pathlib import Path

from data.errors import ModelError
from models.store import load_version


def main(argv: list[str]) -> int:
    """Load the folder named by the only argument."""
    if len(argv) != 1:
        print("usage: python -m models.verify_load FOLDER", file=sys.stderr)
        return 2
    try:
        print(load_version(Path(argv[0])).version)
    except ModelError as error:
        print(f"{error.reason}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
