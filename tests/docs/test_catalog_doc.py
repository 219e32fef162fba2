"""The page on the catalog shows the shipped numbers, and its example runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from data.catalog.calibrate import CACHED_TOKENS, DECODE_BATCHES, DECODE_CONTEXTS, PREFILL_TOKENS
from data.catalog.load import load_catalog
from data.catalog.memory import StartAssumptions

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "catalog.md").read_text()


@pytest.mark.parametrize("model", load_catalog().models())
def test_the_error_table_of_each_model_is_the_shipped_one(model: str) -> None:
    catalog = load_catalog()
    table = PAGE.split(f"\n### {model}\n")[1].split("\n###")[0]
    rows = {line.split(" | ")[0].strip("| "): line for line in table.splitlines() if line.startswith("| ")}
    for facts in catalog.replicas(model):
        cells = [cell.strip() for cell in rows[facts.gpu_type].strip("|").split("|")]
        cell = cells[1 + (1, 2, 4, 8).index(facts.tensor_parallel)]
        assert facts.source.prefill_error is not None
        assert facts.source.decode_error is not None
        assert cell == f"{100 * facts.source.prefill_error:.1f} / {100 * facts.source.decode_error:.1f}"
    known = {(facts.gpu_type, facts.tensor_parallel) for facts in catalog.replicas(model)}
    filled = sum(len(re.findall(r"\d / \d", line)) for name, line in rows.items() if name != "GPU")
    assert filled == len(known)


def test_gpu_table() -> None:
    for gpu in load_catalog().gpus():
        numbers = (gpu.memory_gb, gpu.memory_bandwidth / 1e12, gpu.power_kw, gpu.price_per_hour)
        assert f"| {gpu.name} | " + " | ".join(f"{number:g}" for number in numbers) + " |" in PAGE


def test_the_page_states_the_grids_and_assumptions_in_use() -> None:
    assert f"{PREFILL_TOKENS[0]} to {PREFILL_TOKENS[-1]:,} new tokens, 0 to {CACHED_TOKENS[-1]:,} cached" in PAGE
    assert f"batch {DECODE_BATCHES[0]} to {DECODE_BATCHES[-1]}" in PAGE
    assert f"context {DECODE_CONTEXTS[0]} to {DECODE_CONTEXTS[-1]:,}" in PAGE
    assumed = StartAssumptions()
    assert f"{assumed.engine_start_s:g} s engine start + weights over {assumed.disk_gb_per_s:g} GB/s" in PAGE
    assert f"− {assumed.activation_reserve_gb:g} GB" in PAGE


def test_the_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(example, "catalog.md", "exec"), {})
