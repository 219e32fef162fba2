"""The catalog: GPU types and replica facts, read from the shipped data file or from one of the user's own."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from datetime import date
from pathlib import Path

from data.catalog.rules import BOOK, CatalogFile, ReplicaRow, SourceRow
from data.catalog.types import GpuType, ReplicaFacts, ServiceTimes, Source
from data.errors import InputError
from data.strict.decode import Decoder
from data.strict.faults import Fault, one_of, to_errors
from data.strict.yaml_tree import read_yaml

SHIPPED_CATALOG = Path(__file__).with_name("catalog.yaml")


class Catalog:
    """Looks up GPU types and replica facts; an unknown name is an ``InputError`` that lists what exists."""

    def __init__(self, gpus: Iterable[GpuType], replicas: Iterable[ReplicaFacts]) -> None:
        self._gpus = {gpu.name: gpu for gpu in gpus}
        self._facts = {(r.catalog_model, r.gpu_type, r.tensor_parallel): r for r in replicas}

    def gpu(self, name: str) -> GpuType:
        """The GPU type of that name."""
        if name not in self._gpus:
            raise InputError("unknown GPU type", value=name, expected=one_of(name, self._gpus))
        return self._gpus[name]

    def gpus(self) -> tuple[GpuType, ...]:
        """All GPU types, in the order of the file."""
        return tuple(self._gpus.values())

    def models(self) -> tuple[str, ...]:
        """All catalog models, sorted."""
        return tuple(sorted({model for model, _, _ in self._facts}))

    def replicas(self, catalog_model: str | None = None) -> tuple[ReplicaFacts, ...]:
        """All facts, or those of one model, in the order of the file."""
        return tuple(f for f in self._facts.values() if catalog_model in (None, f.catalog_model))

    def facts(self, catalog_model: str, gpu_type: str, tensor_parallel: int) -> ReplicaFacts:
        """What is known about one way to run a model."""
        found = self._facts.get((catalog_model, gpu_type, tensor_parallel))
        if found is not None:
            return found
        if catalog_model not in self.models():
            expected = one_of(catalog_model, self.models())
            raise InputError("unknown catalog model", value=catalog_model, expected=expected)
        self.gpu(gpu_type)
        raise InputError(
            f"the catalog has no {catalog_model} on {tensor_parallel} x {gpu_type}",
            expected=self._ways(catalog_model),
        )

    def _ways(self, catalog_model: str) -> str:
        """Text of the GPU types and degrees that a model has entries for."""
        degrees: dict[str, list[int]] = {}
        for model, gpu, degree in self._facts:
            if model == catalog_model:
                degrees.setdefault(gpu, []).append(degree)
        listed = (f"{gpu} x {'/'.join(map(str, sorted(found)))}" for gpu, found in sorted(degrees.items()))
        return "one of " + ", ".join(listed)


def load_catalog(path: Path | None = None) -> Catalog:
    """Read a catalog file; the shipped one if no path is given (read once, then kept).

    Raises:
        InputError: The file cannot be read or has a fault; the message names the first.
    """
    return _shipped() if path is None else _read(path)


@functools.cache
def _shipped() -> Catalog:
    return _read(SHIPPED_CATALOG)


def _read(path: Path) -> Catalog:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the catalog: {error}", source=str(path)) from error
    return parse_catalog(text, str(path))


def parse_catalog(text: str, source: str) -> Catalog:
    """A catalog from YAML text; ``source`` names it in errors."""
    tree = read_yaml(text)
    decoder = Decoder(BOOK, faults=list(tree.faults))
    content = decoder.read(CatalogFile, tree.value) if tree.value is not None else None
    faults = decoder.faults
    if isinstance(content, CatalogFile) and not faults:
        faults = _cross_faults(content)
    if faults or not isinstance(content, CatalogFile):
        raise to_errors(faults, InputError, source, tree.lines)[0]
    sources = {row.id: row for row in content.sources}
    gpus = [
        GpuType(
            row.name,
            row.memory_gb,
            row.memory_bandwidth,
            row.power_kw,
            row.price_per_hour,
            _source(sources[row.source]),
        )
        for row in content.gpus
    ]
    return Catalog(gpus, [_replica(row, sources[row.source]) for row in content.replicas])


def _cross_faults(content: CatalogFile) -> list[Fault]:
    """References between rows, and rows that say the same thing twice."""
    faults: list[Fault] = []
    sources = {row.id for row in content.sources}
    gpus = {row.name for row in content.gpus}
    for i, row in enumerate(content.sources):
        if not _is_date(row.retrieved):
            faults.append(Fault(("sources", i, "retrieved"), "no such day", value=row.retrieved))
    entries = [(("gpus", i), g.name, g.source) for i, g in enumerate(content.gpus)]
    entries += [
        (("replicas", i), f"{r.model} on {r.tensor_parallel} x {r.gpu}", r.source)
        for i, r in enumerate(content.replicas)
    ]
    seen: set[str] = set()
    for path, label, origin in entries:
        if origin not in sources:
            expected = one_of(origin, sources)
            faults.append(Fault((*path, "source"), "unknown source", value=origin, expected=expected))
        if label in seen:
            faults.append(Fault(path, "duplicate entry", value=label, expected="each once"))
        seen.add(label)
    for i, replica in enumerate(content.replicas):
        if replica.gpu not in gpus:
            expected = one_of(replica.gpu, gpus)
            faults.append(Fault(("replicas", i, "gpu"), "unknown GPU type", value=replica.gpu, expected=expected))
    return faults


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _source(row: SourceRow, prefill: float | None = None, decode: float | None = None) -> Source:
    errors = [error for error in (prefill, decode) if error is not None]
    return Source(
        name=row.name,
        retrieved=date.fromisoformat(row.retrieved),
        median_error=max(errors) if errors else None,
        prefill_error=prefill,
        decode_error=decode,
    )


def _replica(row: ReplicaRow, source: SourceRow) -> ReplicaFacts:
    times = ServiceTimes(
        p0=row.p0,
        p1=row.p1,
        p2=row.p2,
        d0=row.d0,
        d1=row.d1,
        d2=row.d2,
        host_overhead=row.host_overhead,
        d_sat=row.d_sat,
        sat_batch=row.sat_batch,
    )
    return ReplicaFacts(
        catalog_model=row.model,
        gpu_type=row.gpu,
        tensor_parallel=row.tensor_parallel,
        times=times,
        kv_capacity_tokens=row.kv_capacity_tokens,
        load_s=row.load_s,
        warm_load_s=row.warm_load_s,
        weights_gb=row.weights_gb,
        source=_source(source, row.prefill_error, row.decode_error),
    )
