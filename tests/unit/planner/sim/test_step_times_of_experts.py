"""A mixed step of a mixture of experts reads the weights once."""

from __future__ import annotations

import pytest

from data.catalog.load import load_catalog
from planner.sim.step_times import StepTimes


@pytest.mark.parametrize("gpu", ["H100", "A100", "H200"])
@pytest.mark.parametrize(("tokens", "cached", "batch", "kv"), [(512, 0, 1, 900), (4096, 2048, 32, 90_000)])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b"])
def test_a_mixed_step_is_that_of_the_catalog(
    model: str, gpu: str, tokens: int, cached: int, batch: int, kv: int
) -> None:
    times = load_catalog().facts(model, gpu, 1).times
    simulated = StepTimes(times).mixed_step_s([(tokens, cached)], batch, kv)
    assert simulated == pytest.approx(times.mixed_s(tokens, cached, batch, kv), rel=1e-12)
    added = times.prefill_s(tokens, cached) + times.decode_s(batch, kv) - min(times.p0, times.d0)
    assert simulated <= added + 1e-12
