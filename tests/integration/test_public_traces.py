"""Public traces against the figures that are known of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.traces.options import TraceOptions
from data.traces.registry import open_trace
from data.traces.report import ReadReport
from data.traces.servegen_rates import read_demand
from data.traces.source import TextSource
from data.traces.stats import TraceStats, describe

pytestmark = pytest.mark.shared_data


@cache
def described(path: Path, **options: Any) -> tuple[TraceStats, ReadReport]:
    reader = open_trace(path, options=TraceOptions(**options))
    return describe(reader.batches()), reader.report


def test_mooncake_conversation(shared_data: Path) -> None:
    found, report = described(shared_data / "mooncake" / "conversation_trace.jsonl")
    assert found.rows == report.rows == 12_031
    assert found.span_s == pytest.approx(3540, abs=1)
    assert (report.time_unit, report.block_tokens) == ("ms", 512)
    assert report.tick_s == pytest.approx(3, abs=0.01)
    assert found.gap_cv == pytest.approx(1.0, abs=0.05)
    assert (found.input_tokens.p50, found.output_tokens.p50) == (6909, 350)
    assert found.input_tokens.p99 == pytest.approx(85_400, rel=1e-3)
    assert found.output_tokens.p99 == pytest.approx(1119, abs=2)
    assert found.ideal_hit_share == pytest.approx(0.37, abs=0.005)


def test_mooncake_without_spreading_keeps_its_ticks(shared_data: Path) -> None:
    found, _ = described(shared_data / "mooncake" / "conversation_trace.jsonl", spread_ticks=False)
    assert found.gap_cv > 2.5


def test_mooncake_synthetic_is_not_quantised(shared_data: Path) -> None:
    found, report = described(shared_data / "mooncake" / "synthetic_trace.first613s.jsonl")
    assert found.rows == 2318
    assert report.tick_s == 0
    assert report.rejected_rows == 0


def test_azure_code_is_bursty(shared_data: Path) -> None:
    found, report = described(shared_data / "azure-llm-2023" / "AzureLLMInferenceTrace_code.csv")
    assert found.rows == report.rows == 8819
    assert found.gap_cv == pytest.approx(13, abs=0.5)
    assert found.busiest_minute_ratio == pytest.approx(4.2, abs=0.15)
    assert (found.input_tokens.p50, found.output_tokens.p50) == (1469, 13)


def test_azure_conversation_is_nearly_poisson(shared_data: Path) -> None:
    found, report = described(shared_data / "azure-llm-2023" / "AzureLLMInferenceTrace_conv.csv")
    assert found.rows == report.rows == 19_366
    assert found.gap_cv == pytest.approx(1.1, abs=0.03)
    assert (found.input_tokens.p50, found.output_tokens.p50) == (1020, 129)


def test_agentic_sessions(shared_data: Path) -> None:
    found, report = described(shared_data / "agentic-coding" / "sessions.jsonl.gz")
    assert (found.rows, report.rows, found.sessions) == (13_687, 13_696, 270)
    assert {str(reason): tally.count for reason, tally in report.rejected.items()} == {"zero_output": 9}
    assert found.ideal_hit_share == pytest.approx(0.96, abs=0.01)
    assert found.closed_loop_turns == 13_687 - 270
    # The published medians (103,660 in, 216 out) are of a larger cut of the same source.
    assert found.input_tokens.p50 == pytest.approx(103_660, rel=0.15)
    assert found.output_tokens.p50 == pytest.approx(216, rel=0.02)
    assert found.think_time_p50_s == pytest.approx(11, abs=0.2)


def test_agentic_calls_are_17_s_apart(shared_data: Path) -> None:
    gaps: list[float] = []
    last: dict[str, float] = {}
    for batch in open_trace(shared_data / "agentic-coding" / "sessions.jsonl.gz").batches():
        for session, at in zip(batch.session_id, batch.arrival_s.tolist(), strict=True):
            if session in last:
                gaps.append(at - last[session])
            last[session] = at
    assert np.median(gaps) == pytest.approx(17, abs=0.5)


@pytest.mark.parametrize(("tier", "outages"), [("m-mid", 62), ("m-large", None)])
def test_servegen_demand(shared_data: Path, tier: str, outages: int | None) -> None:
    report = ReadReport("rates", "servegen")
    demand = read_demand(TextSource(shared_data / "servegen" / f"{tier}.rates.day0-10.csv.gz"), report)
    starts, total, outage = demand.totals()
    assert report.rejected_rows == 0
    assert len(starts) == 1584
    assert demand.window_s == 600
    assert 1.5 <= total.max() / total[~outage].mean() <= 3.5
    if outages is not None:
        assert int(outage.sum()) == outages


@pytest.mark.parametrize(
    ("rates", "lengths"),
    [
        ("deepseek-r1.rates.csv.gz", "deepseek-r1.datasets.json.gz"),
        ("mm-image.rates.csv.gz", "mm-image.datasets.json.gz"),
        ("m-large.rates.day0-10.csv.gz", "m-large.length_quantiles.day0-10.csv.gz"),
        ("deepseek-r1.rates.csv.gz", "m-mid.client60.dataset.day0-10.json.gz"),
    ],
)
def test_servegen_requests_keep_the_demand(shared_data: Path, rates: str, lengths: str) -> None:
    folder, scale = shared_data / "servegen", 1e-3
    demand = read_demand(TextSource(folder / rates), ReadReport("rates", "servegen"))
    expected = float(demand.rate_per_s.sum()) * demand.window_s * scale
    found, report = described(folder / rates, lengths=folder / lengths, rate_scale=scale)
    assert report.rejected_rows == 0
    assert found.rows == pytest.approx(expected, rel=0.02, abs=50)
    assert found.tenants is not None
    assert found.tenants > 20
