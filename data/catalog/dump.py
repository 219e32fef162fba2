"""Catalog values to the text of a catalog file: one entry a line, six significant digits."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from data.atomic_file import write_text_atomic
from data.catalog.memory import KV_MEMORY_SHARE, StartAssumptions
from data.catalog.types import GpuType, ReplicaFacts, Source
from data.errors import InputError


def write_catalog(
    path: Path, gpus: Sequence[GpuType], replicas: Sequence[ReplicaFacts], assumptions: StartAssumptions
) -> None:
    """Write a catalog file atomically; reading it back gives the same values to six digits.

    Raises:
        InputError: The file cannot be written; the old one is kept.
    """
    try:
        write_text_atomic(path, dump_catalog(gpus, replicas, assumptions))
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from error


def dump_catalog(gpus: Sequence[GpuType], replicas: Sequence[ReplicaFacts], assumptions: StartAssumptions) -> str:
    """The text of a catalog file."""
    origins = sorted({_origin(gpu.source) for gpu in gpus} | {_origin(facts.source) for facts in replicas})
    ids = {origin: f"s{i}" for i, origin in enumerate(origins, start=1)}
    return "\n".join(
        [
            *_header(assumptions),
            "sources:",
            *(f"  - {{id: {ids[o]}, name: {_quoted(o[0])}, retrieved: {_quoted(o[1])}}}" for o in origins),
            "gpus:",
            *(f"  - {{{_pairs(_gpu_row(gpu, ids))}}}" for gpu in gpus),
            "replicas:",
            *(f"  - {{{_pairs(_replica_row(facts, ids))}}}" for facts in replicas),
            "",
        ]
    )


def _header(assumptions: StartAssumptions) -> list[str]:
    reserve = assumptions.activation_reserve_gb
    return [
        "# GPU types and replica facts, written by data.catalog.calibrate. Seconds, tokens, 1e9 bytes, bytes/s.",
        "# prefill of n tokens after c cached ones: p0 + p1*n + p2*n*(c + n/2)",
        "# decode step of b sequences with k tokens: d0 + d1*b + d2*k + d_sat*(1 - exp(-b/sat_batch))",
        "# *_error: median absolute relative error of the fit against the source's own points.",
        f"# kv_capacity_tokens: (memory_gb*{KV_MEMORY_SHARE:g} - weights_gb/tp - {reserve:g}) GB on each GPU, "
        "divided by the bytes that one token takes there.",
        f"# load_s: {assumptions.engine_start_s:g} s + weights_gb / {assumptions.disk_gb_per_s:g} GB/s (disk). "
        f"warm_load_s: {assumptions.warm_start_s:g} s + weights_gb / (tp * {assumptions.host_gb_per_s:g} GB/s).",
        "# The constants of these lines, and the prices, are round assumptions of this project.",
    ]


def _origin(source: Source) -> tuple[str, str]:
    return source.name, source.retrieved.isoformat()


def _gpu_row(gpu: GpuType, ids: dict[tuple[str, str], str]) -> dict[str, object]:
    row = {field.name: getattr(gpu, field.name) for field in dataclasses.fields(gpu)}
    return {**row, "source": ids[_origin(gpu.source)]}


def _replica_row(facts: ReplicaFacts, ids: dict[tuple[str, str], str]) -> dict[str, object]:
    times = facts.times
    row: dict[str, object] = {
        "model": facts.catalog_model,
        "gpu": facts.gpu_type,
        "tensor_parallel": facts.tensor_parallel,
        "kv_capacity_tokens": facts.kv_capacity_tokens,
        "weights_gb": facts.weights_gb,
        "load_s": facts.load_s,
        "warm_load_s": facts.warm_load_s,
        **{name: getattr(times, name) for name in ("p0", "p1", "p2", "d0", "d1", "d2")},
    }
    if times.d_sat:
        row |= {"d_sat": times.d_sat, "sat_batch": times.sat_batch}
    if times.host_overhead:
        row["host_overhead"] = times.host_overhead
    for name in ("prefill_error", "decode_error"):
        if getattr(facts.source, name) is not None:
            row[name] = round(getattr(facts.source, name), 4)
    return {**row, "source": ids[_origin(facts.source)]}


def _pairs(row: dict[str, object]) -> str:
    return ", ".join(f"{key}: {_number(value)}" for key, value in row.items())


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
