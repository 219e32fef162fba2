"""Names in a fleet document: each declared once, each reference points at a declared one.

Works on the plain document (dict, list, text), so that it also finds these faults in a document that has others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from data.catalog.load import Catalog
from data.strict.faults import Fault, Path, one_of

DECLARATIONS: dict[str, str] = {
    "sites": "name",
    "configs": "name",
    "classes": "name",
    "tenants": "name",
    "endpoints": "id",
}
"""Sections whose entries have a name of their own, and the key that holds it."""

REFERENCES: tuple[tuple[str, str], ...] = (
    ("links.*.a", "site"),
    ("links.*.b", "site"),
    ("gpu_pools.*.site", "site"),
    ("gpu_pools.*.gpu_type", "GPU type"),
    ("models.*.catalog", "catalog model"),
    ("configs.*.model", "model"),
    ("configs.*.gpu_type", "GPU type"),
    ("tenants.*.residency_zones.*", "zone"),
    ("tenants.*.models.*", "model"),
    ("tenants.*.sites.*", "site"),
    ("tenants.*.reservations.*.model", "model"),
    ("tenants.*.reservations.*.workload_class", "class"),
    ("tenants.*.reservations.*.sites.*", "site"),
    ("placement.*.site", "site"),
    ("placement.*.config", "config"),
    ("endpoints.*.site", "site"),
    ("endpoints.*.config", "config"),
)
"""Where a name refers to something, and to what kind of thing. ``*`` stands for every entry of a list."""

Plain = dict[str, object]


@dataclass(frozen=True, slots=True)
class Place:
    """One value of the document with its path."""

    path: Path
    value: object


def reference_faults(document: Plain, catalog: Catalog) -> list[Fault]:
    """Unknown references and names that are declared twice."""
    known = declared_names(document, catalog)
    faults = list(_duplicates(document))
    for pattern, kind in REFERENCES:
        for place in _matches(document, pattern.split(".")):
            if isinstance(place.value, str) and place.value not in known[kind]:
                expected = one_of(place.value, known[kind])
                faults.append(Fault(place.path, f"unknown {kind}", value=place.value, expected=expected))
    return faults


def declared_names(document: Plain, catalog: Catalog) -> dict[str, set[str]]:
    """All names that a reference of each kind may use."""
    return {
        "site": _texts(document, "sites.*.name"),
        "zone": _texts(document, "sites.*.zone"),
        "config": _texts(document, "configs.*.name"),
        "class": _texts(document, "classes.*.name"),
        "model": {key for _, key in _model_keys(document)},
        "GPU type": {gpu.name for gpu in catalog.gpus()},
        "catalog model": set(catalog.models()),
    }


def _model_keys(document: Plain) -> Iterator[tuple[Path, str]]:
    for place in _matches(document, ["models", "*"]):
        if isinstance(place.value, dict):
            yield place.path, f"{place.value.get('name')}@{place.value.get('version')}"


def _texts(document: Plain, pattern: str) -> set[str]:
    return {place.value for place in _matches(document, pattern.split(".")) if isinstance(place.value, str)}


def _duplicates(document: Plain) -> Iterator[Fault]:
    for section, key in DECLARATIONS.items():
        yield from _repeated(
            [(p.path, p.value) for p in _matches(document, [section, "*", key]) if isinstance(p.value, str)]
        )
    yield from _repeated([((*path, "version"), key) for path, key in _model_keys(document)])
    for section, keys in (("gpu_pools", ("site", "gpu_type")), ("placement", ("site", "config"))):
        pairs = _matches(document, [section, "*"])
        entries = [(p.path, p.value) for p in pairs if isinstance(p.value, dict)]
        yield from _repeated([(path, " / ".join(str(e.get(key)) for key in keys)) for path, e in entries])
    links = [(p.path, p.value) for p in _matches(document, ["links", "*"]) if isinstance(p.value, dict)]
    yield from _repeated([(path, " - ".join(sorted(map(str, (e.get("a"), e.get("b")))))) for path, e in links])


def _repeated(entries: list[tuple[Path, object]]) -> Iterator[Fault]:
    first: dict[object, Path] = {}
    for path, name in entries:
        if name in first:
            yield Fault(path, "duplicate of an earlier entry", value=name, expected="each once")
        first.setdefault(name, path)


def _matches(value: object, pattern: list[str], path: Path = ()) -> Iterator[Place]:
    """All values at a pattern; parts of the document with another shape are passed over."""
    if not pattern:
        yield Place(path, value)
    elif pattern[0] == "*":
        if isinstance(value, list):
            for i, item in enumerate(value):
                yield from _matches(item, pattern[1:], (*path, i))
    elif isinstance(value, dict) and pattern[0] in value:
        yield from _matches(value[pattern[0]], pattern[1:], (*path, pattern[0]))
