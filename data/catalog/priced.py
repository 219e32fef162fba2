"""Step times of a shipped entry as its source prices them, without what recorded engines added."""

from __future__ import annotations

from dataclasses import replace

from data.catalog.calibration_inputs import GPUS, MODELS
from data.catalog.link import link_times
from data.catalog.types import ReplicaFacts, ServiceTimes


def priced_times(facts: ReplicaFacts) -> ServiceTimes:
    """Without host overhead and link; for comparisons with the recordings that these were fitted on."""
    engine = next((gpu.engine for gpu in GPUS if gpu.name == facts.gpu_type), None)
    shape = next((model.shape for model in MODELS if model.name == facts.catalog_model), None)
    if engine is None or shape is None:
        return facts.times
    times = replace(facts.times, host_overhead=0.0)
    if facts.tensor_parallel == 1:
        return times
    return link_times(times, shape, facts.tensor_parallel, -engine.link_bytes_per_s)
