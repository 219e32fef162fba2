"""Plans named on a command line: a plan file, a plan store, or one version of a store."""

from __future__ import annotations

import re
from pathlib import Path

from data.errors import PlanFileError
from data.plan import PlanDocument
from data.plan_io import read_plan
from planner.plan_store.layout import StoreFolder


def plan_at(text: str) -> PlanDocument:
    """The plan of ``FILE``, ``DIR`` (in force) or ``DIR@VERSION``.

    Raises:
        PlanFileError: It cannot be read, or is wrong.
    """
    path = Path(text)
    if path.is_dir():
        found = store_at(path).current()
        if found is None:
            raise PlanFileError("no plan has been published yet", source=text)
        return found.plan
    match = re.fullmatch(r"(.+)@(\d+)", text)
    if match is not None and not path.exists() and Path(match[1]).is_dir():
        return store_at(Path(match[1])).version(int(match[2])).plan
    return read_plan(path)


def store_at(path: Path) -> StoreFolder:
    """The plan store in a folder.

    Raises:
        PlanFileError: There is none.
    """
    folder = StoreFolder(path)
    if not folder.exists():
        raise PlanFileError("no plan store here", source=str(path), expected="a folder of `serve planner --plans`")
    return folder
