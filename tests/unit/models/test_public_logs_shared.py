"""The real public logs load with the counts that stand in their descriptions."""

import numpy as np
import pytest

from models.features import INDEX
from models.public_logs.registry import load_public_log

EXPECTED = {
    "adapters": ("adapter-serving-h100", 1477, 50, {"no_series": 63}),
    "aibrix": ("aibrix-fleet", 18710, 9, {}),
    "burstgpt": ("burstgpt-vllm-replay", 4000, 8, {}),
    "llmservingsim": ("llmservingsim", 900, 3, {}),
    "silicon": ("aiconfigurator", 3281, 233, {"disaggregated": 1602, "repeated": 338}),
    "vtc": ("vtc", 24187, 12, {}),
}


@pytest.mark.shared_data
@pytest.mark.parametrize("source", sorted(EXPECTED))
def test_every_row_is_a_sample_or_counted(source, shared_data):
    folder, rows, runs, dropped = EXPECTED[source]
    log = load_public_log(source, shared_data / folder)
    assert (len(log.samples), len(log.runs), log.samples.dropped) == (rows, runs, dropped)
    features = log.samples.features
    load = features[:, INDEX["queue_depth"] : INDEX["gpu_type"]]
    # What no log tells is unknown, never 0.
    unknown = [INDEX[name] - INDEX["queue_depth"] for name in ("waiting_prefill_s", "prefill_load")]
    assert np.isnan(features[:, INDEX["prefill_load"]]).all()
    load = np.delete(load, unknown, axis=1)
    assert np.isfinite(load).all()
    assert (load >= 0).all()
    assert (features[:, INDEX["kv_use"]] <= 1).all()
    assert (log.samples.ttft_s > 0).all()
    assert np.isnan(log.samples.tpot_s).all() == (source == "burstgpt")


@pytest.mark.shared_data
def test_overload_shows_as_a_queue(shared_data):
    log = load_public_log("burstgpt", shared_data / "burstgpt-vllm-replay")
    queue = log.samples.features[:, INDEX["queue_depth"]]
    assert np.corrcoef(queue, log.extra["engine_waiting"])[0, 1] > 0.9, "two views of the same queue"
