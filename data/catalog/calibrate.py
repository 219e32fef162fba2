"""Derive the catalog from per-step estimates of the ``aiconfigurator-core`` package.

The package prices one prefill or decode step from operator measurements, without queueing. This module asks it
for a grid of steps, fits the coefficients, adds memory and start-up arithmetic and writes ``catalog.yaml``::

    python -m data.catalog.calibrate --out catalog.yaml

Needs the extra ``calibrate``; nothing else in the project does.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import yaml

from data.catalog.calibration_inputs import GPUS, MODELS, TENSOR_PARALLEL, GpuInput, ModelInput
from data.catalog.dump import write_catalog
from data.catalog.fit import StepFit, fit_steps
from data.catalog.link import link_times
from data.catalog.memory import StartAssumptions, kv_capacity_tokens
from data.catalog.types import GpuType, ReplicaFacts, ServiceTimes, Source
from data.errors import TokenFleetError
from data.types import FloatArray

PACKAGE = "aiconfigurator-core"
BACKEND = "vllm"
PREFILL_TOKENS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
CACHED_TOKENS = (0, 2048, 8192, 32768)
DECODE_BATCHES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256)
DECODE_CONTEXTS = (128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
LEAST_KV_TOKENS = 8192
"""A replica that holds fewer KV tokens than this is left out: it could not serve one long request."""

log = logging.getLogger("tokenfleet.catalog")


class CalibrationError(TokenFleetError):
    """The package that prices the steps is absent or has no data for a combination."""


class StepEngine(Protocol):
    """Prices one step in milliseconds (the part of the package's engine that we call)."""

    def predict_prefill_latency(self, bs: int, isl: int, prefix: int = 0) -> float:
        """One prefill of ``bs`` prompts of ``isl`` tokens, of which ``prefix`` are cached."""
        ...

    def predict_decode_latency(self, bs: int, isl: int, osl: int = 2) -> float:
        """One decode step of ``bs`` sequences of ``isl`` tokens."""
        ...


@dataclass(frozen=True, slots=True)
class CalibratedCatalog:
    """What a calibration yields; ``skipped`` names combinations without data or memory, with the reason."""

    gpus: tuple[GpuType, ...]
    replicas: tuple[ReplicaFacts, ...]
    skipped: tuple[str, ...]


def calibrate(
    gpus: Sequence[GpuInput] = GPUS,
    models: Sequence[ModelInput] = MODELS,
    assumptions: StartAssumptions | None = None,
    today: date | None = None,
) -> CalibratedCatalog:
    """Derive GPU types and replica facts; ``CalibrationError`` if the extra ``calibrate`` is not installed."""
    assumptions = assumptions or StartAssumptions()
    source = Source(f"{PACKAGE} {package_version()}, {BACKEND} tables", today or datetime.now(UTC).date())
    types = tuple(gpu_type(gpu, source) for gpu in gpus)
    replicas: list[ReplicaFacts] = []
    skipped: list[str] = []
    for model in models:
        for gpu, gpu_facts in zip(gpus, types, strict=True):
            for degree in TENSOR_PARALLEL:
                label = f"{model.name} on {degree} x {gpu.name}"
                kv_tokens = _kv_tokens(model, gpu_facts, degree, assumptions)
                if kv_tokens < LEAST_KV_TOKENS:
                    skipped.append(f"{label}: weights leave no room")
                    continue
                try:
                    fit = fit_engine(compile_engine(model, gpu, degree), kv_tokens, model.experts)
                except CalibrationError as error:
                    skipped.append(f"{label}: {error}")
                    continue
                replicas.append(_facts(model, gpu, degree, kv_tokens, fit, assumptions, source))
        log.info("calibrated %s", model.name)
    return CalibratedCatalog(types, tuple(replicas), tuple(skipped))


def package_version() -> str:
    """Version of the pricing package; ``CalibrationError`` that says how to get it if it is absent."""
    try:
        import aiconfigurator_core  # noqa: F401
    except ImportError as error:
        raise CalibrationError(
            "the package aiconfigurator-core is not installed; install the extra: pip install '.[calibrate]'"
        ) from error
    return importlib.metadata.version(PACKAGE)


def gpu_type(gpu: GpuInput, source: Source) -> GpuType:
    """Memory, bandwidth and power of a GPU from the package's system sheet; the price is ours."""
    import aiconfigurator_core

    package_file = aiconfigurator_core.__file__
    sheet = Path(str(package_file)).parent / "systems" / f"{gpu.system}.yaml"
    spec: dict[str, Any] = yaml.safe_load(sheet.read_text())["gpu"]
    return GpuType(
        name=gpu.name,
        memory_gb=round(spec["mem_capacity"] / 1e9, 2),
        memory_bandwidth=float(spec["mem_bw"]),
        power_kw=spec["power"] / 1000,
        price_per_hour=gpu.price_per_hour,
        source=replace(source, name=f"{source.name}; price: relative, set by this project"),
    )


def compile_engine(model: ModelInput, gpu: GpuInput, tensor_parallel: int) -> StepEngine:
    """The package's engine for one combination; ``CalibrationError`` if it cannot build one."""
    from aiconfigurator_core.sdk.engine import EngineHandle

    try:
        engine: StepEngine = EngineHandle.compile(
            model.checkpoint,
            gpu.system,
            BACKEND,
            tp_size=tensor_parallel,
            moe_tp_size=tensor_parallel,
            moe_ep_size=1,
        )
    except Exception as error:  # the package raises many kinds, some of them plain Exception
        raise CalibrationError(_first_line(error)) from error
    return engine


def fit_engine(engine: StepEngine, kv_tokens: int, experts: bool) -> StepFit:
    """Ask an engine for both grids (what fits in ``kv_tokens``) and fit them."""
    try:
        prefill = _rows(_prefill_points(engine, kv_tokens))
        decode = _rows(_decode_points(engine, kv_tokens))
    except Exception as error:  # missing tables surface as many kinds of exception
        raise CalibrationError(_first_line(error)) from error
    return fit_steps(prefill, decode, saturating=experts)


def _prefill_points(engine: StepEngine, kv_tokens: int) -> Iterator[tuple[float, float, float]]:
    for cached in CACHED_TOKENS:
        for tokens in PREFILL_TOKENS:
            if tokens + cached <= kv_tokens:
                yield tokens, cached, engine.predict_prefill_latency(1, tokens + cached, cached) / 1e3


def _decode_points(engine: StepEngine, kv_tokens: int) -> Iterator[tuple[float, float, float]]:
    for batch in DECODE_BATCHES:
        for context in DECODE_CONTEXTS:
            if batch * context <= kv_tokens:
                yield batch, batch * context, engine.predict_decode_latency(batch, context, 2) / 1e3


def _rows(points: Iterator[tuple[float, float, float]]) -> FloatArray:
    return np.array(list(points), dtype=np.float64)


def _kv_tokens(model: ModelInput, gpu: GpuType, degree: int, assumptions: StartAssumptions) -> int:
    return kv_capacity_tokens(
        gpu.memory_gb,
        model.parameters * model.bytes_per_parameter / 1e9,
        model.kv_bytes_per_token,
        degree,
        min(degree, model.kv_heads),
        assumptions.activation_reserve_gb,
    )


def _facts(
    model: ModelInput,
    gpu: GpuInput,
    degree: int,
    kv_tokens: int,
    fit: StepFit,
    assumptions: StartAssumptions,
    source: Source,
) -> ReplicaFacts:
    weights_gb = model.parameters * model.bytes_per_parameter / 1e9
    prefill_error, decode_error = fit.prefill.median_error, fit.decode.median_error
    notes = [source.name, model.note, *_engine_notes(gpu, degree)]
    return ReplicaFacts(
        catalog_model=model.name,
        gpu_type=gpu.name,
        tensor_parallel=degree,
        times=engine_times(fit.times, model, gpu, degree),
        kv_capacity_tokens=kv_tokens,
        load_s=assumptions.load_s(weights_gb),
        warm_load_s=assumptions.warm_load_s(weights_gb, degree),
        weights_gb=weights_gb,
        source=replace(
            source,
            name="; ".join(note for note in notes if note),
            median_error=max(prefill_error, decode_error),
            prefill_error=prefill_error,
            decode_error=decode_error,
        ),
    )


def engine_times(times: ServiceTimes, model: ModelInput, gpu: GpuInput, degree: int) -> ServiceTimes:
    """The priced steps with what recorded engines on this GPU took beyond them."""
    if gpu.engine is None:
        return times
    if degree > 1:
        times = link_times(times, model.shape, degree, gpu.engine.link_bytes_per_s)
    return replace(times, host_overhead=gpu.engine.host_overhead_s)


def _engine_notes(gpu: GpuInput, degree: int) -> list[str]:
    if gpu.engine is None:
        return []
    if degree == 1:
        return [gpu.engine.host_source]
    other = "" if degree == gpu.engine.link_gpus else f", not measured on {degree}: by the bytes of a ring"
    return [gpu.engine.host_source, gpu.engine.link_source + other]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of the module: derive the catalog and write it."""
    parser = argparse.ArgumentParser(prog="python -m data.catalog.calibrate", description="Derive the catalog.")
    parser.add_argument("--out", type=Path, required=True, help="file to write, replaced as a whole")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        result = calibrate()
        write_catalog(options.out, result.gpus, result.replicas, StartAssumptions())
    except TokenFleetError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    for line in result.skipped:
        log.info("left out: %s", line)
    log.info("wrote %d replica entries to %s", len(result.replicas), options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
