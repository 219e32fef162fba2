"""The page and the tables of a training: what they say, and that they hold for odd models."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.card import ModelCard, Probe
from models.features import LEARNED, NAMES, UNITS, schema_hash
from planner.report.train_charts import density_chart, groups_chart, residual_chart
from planner.report.train_data import TargetView, TrainReport
from planner.report.train_html import render_train_report, write_train_report
from planner.report.train_tables import comparison_tables, coverage_grid, gate_reason, group_table, quantile_table

BANDS = ("idle", "light", "busy", "swamped")


def group(target: str, name: str, error: float, quantiles: tuple[float, ...] = (0.5, 0.9)) -> dict[str, Any]:
    return {
        "target": target,
        "group": name,
        "rows": 120,
        "censored": 3,
        "median_error": error,
        "loss": 0.05,
        "coverage": {str(level): level for level in quantiles},
        "losses": {str(level): 0.05 for level in quantiles},
        "bias": 0.97,
    }


def evaluation(error: float) -> dict[str, Any]:
    names = ["all", "gpu_type:H100", "load:idle", "gpu_load:H100/idle", "prompt:<1k"]
    groups = [group(target, name, error) for target in ("ttft_s", "tpot_s") for name in names]
    return {"version": "", "loss": error, "groups": groups, "extrapolated_share": 0.0}


@pytest.fixture
def card() -> ModelCard:
    report = {"model": evaluation(0.05), "prior": evaluation(0.2), "peer": evaluation(0.3)}
    report["gate"] = {"promote": True, "reasons": [], "losses": {"model": 0.05, "prior": 0.2, "serving": 0.07}}
    pair = {"ttft_s": (0.0, 0.0), "tpot_s": (0.0, 0.0)}
    return ModelCard(
        version="v0003", created_at="2026-01-01T00:00:00Z", features=NAMES, units=tuple(UNITS.values()),
        schema_hash=schema_hash(), gpu_types=("H100", "L40S"), models=("m@1",), roles=(0.0,), quantiles=(0.5, 0.9),
        base=pair, low=(0.0,) * len(LEARNED), high=(1.0,) * len(LEARNED), clamp=pair, offsets={}, prior={},
        data={"rows": 5000, "censored": 3, "runs": 1, "since_s": 0.0, "until_s": 900.0, "left_out": {"failed": 2}},
        boost={"mean_trees": 60}, libraries={"numpy": "2"}, report=report,
        checks={"crossing_rate": 0.0, "not_finite": 0.0, "falls_with_kv_use": 0.001},
        importance={name: {"running": 0.6, "queue_depth": 0.4} for name in ("ttft_s", "tpot_s")},
        probe=Probe((), (), ()),
    )  # fmt: skip


def view(rows: int = 500, runs: int = 1, target: str = "ttft_s") -> TargetView:
    random = np.random.default_rng(0)
    observed = random.lognormal(0, 1, rows)
    run = np.sort(random.integers(0, runs, rows))
    return TargetView(
        target, np.sort(random.random(rows)) * 900, run, observed, observed * random.lognormal(0, 0.1, rows)
    )


def report(card: ModelCard, *views: TargetView) -> TrainReport:
    return TrainReport(card, True, views, ("log <1>",), (("a.parquet", "damaged"),), "tokenfleet train")


def test_the_page_holds_everything_and_needs_no_network(card: ModelCard, tmp_path: Path) -> None:
    write_train_report(report(card, view(), view(target="tpot_s")), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    own = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r'(src|href)="https?:', own)
    assert "connect-src" not in own
    assert "default-src 'none'" in own
    assert "log &lt;1&gt;" in own
    assert "a.parquet: damaged" in own
    assert "below the prior" in own
    data = re.search(r'id="chart-data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    drawn = [chart["id"] for chart in json.loads(data[1])]
    assert drawn == [
        "density-ttft_s", "density-tpot_s", "residual-ttft_s", "residual-tpot_s", "groups-ttft_s", "groups-tpot_s",
        "importance",
    ]  # fmt: skip
    for name in drawn:
        assert f'id="chart-{name}"' in own
    assert render_train_report(report(card, view())) == render_train_report(report(card, view()))


def test_the_density_counts_every_row() -> None:
    for rows in (1, 2, 800):
        chart = density_chart(view(rows))
        counts = [int(text.replace(",", "")) for row in chart.traces[0]["text"] for text in row]
        assert sum(counts) == rows


def test_runs_are_drawn_apart_and_a_single_one_with_its_band() -> None:
    assert len(residual_chart(view(500, 1)).traces) == 3
    several = residual_chart(view(900, 6))
    assert [trace["name"].split()[0] for trace in several.traces] == ["run"] * 4
    assert "2 more are not drawn" in several.alternative
    assert residual_chart(view(1)).traces[-1]["y"]


def test_rivals_stand_beside_the_model(card: ModelCard) -> None:
    chart = groups_chart(card, "ttft_s")
    assert [trace["name"] for trace in chart.traces] == ["this model", "prior alone", "peers' recipe"]
    assert "this model 5.0\u00a0%, prior alone 20.0\u00a0%, peers' recipe 30.0\u00a0%" in chart.alternative
    table = group_table(card, "ttft_s")
    assert [row.cells[0] for row in table.rows] == ["all", "GPU H100", "load idle", "prompt <1k"]
    assert table.rows[0].cells[3:6] == ("5.0\u00a0%", "20.0\u00a0%", "30.0\u00a0%")
    assert [row.cells[0] for row in quantile_table(card).rows] == ["TTFT p50", "TTFT p90", "TPOT p50", "TPOT p90"]
    grid = coverage_grid(card, "ttft_s")
    assert grid.columns == BANDS
    assert [(name, cells[0].text, cells[1].text) for name, cells in grid.rows] == [("H100", "90.0\u00a0%", "–")]


def test_a_card_of_before_has_neither_peers_nor_bias(card: ModelCard) -> None:
    """Reports of older versions in a store lack the newer measures."""
    old = {"model": evaluation(0.05), "prior": evaluation(0.2)}
    for whose in old.values():
        for one in whose["groups"]:
            del one["bias"], one["losses"]
    card = replace(card, report=old)
    assert "Not judged" in gate_reason(card)
    assert group_table(card, "ttft_s").rows[0].cells[5:8] == ("–", "–", "–")
    assert "v0003" in render_train_report(report(card, view()))
    tables = comparison_tables([card, card], "tpot_s")
    assert all(len(row.cells) == 3 for table in tables for row in table.rows)


def test_the_gate_says_why(card: ModelCard) -> None:
    assert gate_reason(card).endswith("and all 3 release checks hold.")
    gate = {"promote": False, "reasons": ("loss 0.3 does not beat the prior's 0.2",), "losses": {"model": 0.3}}
    assert "does not beat the prior's" in gate_reason(replace(card, report=card.report | {"gate": gate}))
