"""``docs/fidelity.md`` and ``docs/catalog.md`` tell the constants that the catalog carries; their links work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.fidelity.adapter_study import BLOCK_TOKENS, KV_BLOCKS
from benchmarks.fidelity.engines import E2E_TARGET, MEASURED_LINK, PRICED_LINK, TTFT_TARGET
from data.catalog.calibration_inputs import RTX_PRO_6000_ENGINE

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("page", ["fidelity.md", "catalog.md"])
def test_the_constants_of_recorded_engines_are_told(page: str) -> None:
    text = (DOCS / page).read_text()
    assert f"{RTX_PRO_6000_ENGINE.host_overhead_s * 1e3:g} ms" in text
    for bytes_per_s in (RTX_PRO_6000_ENGINE.link_bytes_per_s, PRICED_LINK, MEASURED_LINK):
        assert f"{bytes_per_s / 1e9:g} GB/s" in text


def test_targets_and_memory_of_the_study_are_told() -> None:
    text = (DOCS / "fidelity.md").read_text()
    assert f"E2E ≤ {100 * E2E_TARGET:g} % and TTFT ≤ {100 * TTFT_TARGET:g} %" in text
    for blocks in KV_BLOCKS.values():
        assert f"{blocks:,}" in text
    assert f"{min(KV_BLOCKS.values()) * BLOCK_TOKENS:,}" in text


@pytest.mark.parametrize("page", ["fidelity.md", "simulator.md", "catalog.md"])
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#:]+\.(?:md|svg))(?:#[\w-]+)?\)", (DOCS / page).read_text()):
        assert (DOCS / target).is_file(), target
    for target, anchor in re.findall(r"\]\(([^)#:]+\.md)#([\w-]+)\)", (DOCS / page).read_text()):
        headings = re.findall(r"^#+ (.+)$", (DOCS / target).read_text(), re.MULTILINE)
        slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert anchor in slugs, (target, anchor)
