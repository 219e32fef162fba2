"""How the catalog file is written: row classes, ranges of their fields."""

from __future__ import annotations

from dataclasses import dataclass

from data.strict.rules import NAME, NOT_NEGATIVE, POSITIVE, Rule, RuleBook

_TIMES = ("load_s", "warm_load_s", "p0", "p1", "p2", "d0", "d1", "d2", "d_sat", "host_overhead")
_DATE = Rule(pattern=r"\d{4}-\d{2}-\d{2}", text="a quoted date such as '2026-01-31'")


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One source, named once and referred to by ``id``."""

    id: str
    name: str
    retrieved: str


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One GPU type. Units as in ``data.catalog.types.GpuType``."""

    name: str
    memory_gb: float
    memory_bandwidth: float
    power_kw: float
    price_per_hour: float
    source: str


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """One (model, GPU type, tensor-parallel degree). Units as in ``data.catalog.types``: seconds, GB, tokens."""

    model: str
    gpu: str
    tensor_parallel: int
    kv_capacity_tokens: int
    weights_gb: float
    load_s: float
    warm_load_s: float
    p0: float
    p1: float
    p2: float
    d0: float
    d1: float
    d2: float
    source: str
    d_sat: float = 0.0
    sat_batch: float = 1.0
    host_overhead: float = 0.0
    prefill_error: float | None = None
    decode_error: float | None = None


@dataclass(frozen=True, slots=True)
class CatalogFile:
    """The whole file."""

    sources: tuple[SourceRow, ...]
    gpus: tuple[GpuRow, ...]
    replicas: tuple[ReplicaRow, ...]


BOOK = RuleBook(
    annotations=True,
    rules={
        SourceRow: {"id": NAME, "retrieved": _DATE},
        GpuRow: {
            "name": NAME,
            "memory_gb": POSITIVE,
            "memory_bandwidth": POSITIVE,
            "power_kw": POSITIVE,
            "price_per_hour": POSITIVE,
        },
        ReplicaRow: {
            "model": NAME,
            "tensor_parallel": Rule(minimum=1),
            "kv_capacity_tokens": Rule(minimum=1),
            "weights_gb": POSITIVE,
            "sat_batch": POSITIVE,
            **dict.fromkeys(_TIMES, NOT_NEGATIVE),
            "prefill_error": NOT_NEGATIVE,
            "decode_error": NOT_NEGATIVE,
        },
    },
)
