"""The shipped coefficients against an independently derived table of step times."""

import csv
import gzip
from collections import defaultdict
from statistics import median

import pytest

from data.catalog.load import load_catalog
from data.catalog.priced import priced_times
from data.errors import InputError

SYSTEMS = {
    "a100_sxm": "A100",
    "h100_sxm": "H100",
    "h200_sxm": "H200",
    "b200_sxm": "B200",
    "l40s": "L40S",
    "rtx_pro_6000_server": "RTX-PRO-6000",
    "b60": "B60",
}
MODELS = {
    "meta-llama/Meta-Llama-3.1-8B": "llama-3.1-8b",
    "meta-llama/Meta-Llama-3.1-70B": "llama-3.3-70b",
    "Qwen/Qwen3-32B": "qwen3-32b",
    "Qwen/Qwen3-30B-A3B": "qwen3-30b-a3b",
}


def predicted_s(row, facts):
    """Our time for a row of the table; ``None`` where it is out of the fit's domain."""
    times = priced_times(facts)
    batch = int(row["batch"])
    if row["phase"] == "prefill":
        cached = int(row["prefix"] or 0)
        return times.prefill_s(int(row["isl"]) - cached, cached) if batch == 1 else None
    kv_tokens = batch * int(float(row["ctx"]))
    return times.decode_s(batch, kv_tokens) if kv_tokens <= facts.kv_capacity_tokens else None


@pytest.mark.shared_data
def test_shipped_times_agree_with_the_table_of_steps(shared_data):
    """Median error over all points that fit in memory, by model and phase."""
    catalog = load_catalog()
    errors = defaultdict(list)
    with gzip.open(shared_data / "aiconfigurator" / "op_level_estimates_vllm.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            if row["oom"] != "0" or row["mode"] != "SILICON":
                continue
            try:
                facts = catalog.facts(MODELS[row["model"]], SYSTEMS[row["system"]], int(row["tp"]))
            except InputError:
                continue
            predicted = predicted_s(row, facts)
            if predicted is not None:
                errors[facts.catalog_model, row["phase"]].append(
                    abs(predicted * 1e3 / float(row["latency_ms"]) - 1)
                )
    assert set(errors) == {(model, phase) for model in MODELS.values() for phase in ("prefill", "decode")}
    for key, found in errors.items():
        assert len(found) > 100, key
        assert median(found) < 0.08, (key, median(found))
