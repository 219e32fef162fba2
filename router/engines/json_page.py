"""Read statistics that an engine gives as JSON: one object, or a list of them with the newest last."""

from __future__ import annotations

from math import isfinite

import orjson

from router.engines.aliases import EngineAdapter, Group, Reading, Series, combine

NO_RANK: Group = ()


class JsonPageReader:
    """Reads the pages of one endpoint.

    Args:
        adapter: What is wanted; the names of its series are dotted paths.
    """

    def __init__(self, adapter: EngineAdapter) -> None:
        self._adapter = adapter
        aliases = [alias for row in adapter.rows for alias in row.aliases]
        self._wanted = {s for alias in aliases for s in (alias.of, alias.over) if s is not None}

    def read(self, page: bytes) -> Reading:
        """The quantities of the newest statistics. Never fails: a page that is no JSON has no samples."""
        try:
            document = orjson.loads(page)
        except orjson.JSONDecodeError:
            return combine(self._adapter, {}, 1)
        newest = document[-1] if isinstance(document, list) and document else document
        samples: dict[Series, dict[Group, float]] = {}
        bad = 0
        for series in self._wanted:
            value = _at(newest, series.name)
            if value is None:
                continue
            if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
                samples[series] = {NO_RANK: float(value)}
            else:
                bad += 1
        return combine(self._adapter, samples, bad)


def _at(document: object, path: str) -> object:
    """What stands at a dotted path, or ``None``."""
    for key in path.split("."):
        if not isinstance(document, dict):
            return None
        document = document.get(key)
    return document
