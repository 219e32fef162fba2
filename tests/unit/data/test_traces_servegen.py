"""ServeGen demand tables: windows, outages, length distributions, and requests made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from data.errors import TraceError
from data.traces.options import TraceOptions
from data.traces.registry import open_trace
from data.traces.report import ReadReport
from data.traces.servegen import arrivals
from data.traces.servegen_lengths import parse_distribution, read_lengths
from data.traces.servegen_rates import read_demand
from data.traces.source import TextSource
from data.types import TraceBatch

HEADER = "client,start_s,rate_per_s,cv,dist,param1,param2\n"
RATES = HEADER + (
    "7,0,0.5,1.0,Gamma,1.0,2.0\n7,600,0,0,,0,0\n7,1200,1.5,2.0,Weibull,0.6,0.4\n"
    "9,0,0.25,1.0,Gamma,1.0,4.0\n9,600,0,0,,0,0\n9,1200,0,0,,0,0\n"
)
DATASET = {
    "7": {
        "0": {"input_tokens": "{100: 0.5, 200: 0.5}", "output_tokens": "{10: 1.0}"},
        "1200": {"input_tokens": "{300: 1.0}", "output_tokens": "{20: 1.0}"},
    }
}


def put(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def expand(tmp_path: Path, rates: str, lengths: object, **options: Any) -> tuple[ReadReport, list[TraceBatch]]:
    lengths_path = put(
        tmp_path / "lengths", lengths if isinstance(lengths, str) else orjson.dumps(lengths).decode()
    )
    reader = open_trace(put(tmp_path / "rates.csv", rates), options=TraceOptions(lengths=lengths_path, **options))
    return reader.report, list(reader.batches())


def test_demand_view_tells_outages_from_idle_clients(tmp_path: Path) -> None:
    report = ReadReport("x", "servegen")
    demand = read_demand(TextSource(put(tmp_path / "r.csv", RATES)), report)
    starts, total, outage = demand.totals()
    assert starts.tolist() == [0, 600, 1200]
    assert total.tolist() == [0.75, 0, 1.5]
    assert outage.tolist() == [False, True, False]
    assert demand.window_s == 600
    assert demand.clients == ("7", "9")


def test_each_window_yields_its_number_of_requests(tmp_path: Path) -> None:
    report, found = expand(tmp_path, RATES, DATASET)
    rows = [row for batch in found for row in batch.rows()]
    first = [row for row in rows if row.arrival_s < 600]
    assert len(first) == 450
    assert not [row for row in rows if 600 <= row.arrival_s < 1200]
    assert len(rows) == 450 + 900
    assert {row.tenant for row in first} == {"7", "9"}
    assert sum(row.tenant == "9" for row in first) == 150
    assert {row.input_tokens for row in first} == {100, 200}
    assert {row.input_tokens for row in rows[450:]} == {300}
    assert report.repaired["lengths_pooled"].count == 150  # type: ignore[index]
    assert any("1 of 3 windows" in note for note in report.notes)
    assert report.rows == report.accepted == 1350


def test_requests_are_seeded_and_scaled(tmp_path: Path) -> None:
    _, one = expand(tmp_path, RATES, DATASET, seed=4)
    _, same = expand(tmp_path, RATES, DATASET, seed=4)
    _, other = expand(tmp_path, RATES, DATASET, seed=5)
    assert np.array_equal(one[0].arrival_s, same[0].arrival_s)
    assert not np.array_equal(one[0].arrival_s, other[0].arrival_s)
    _, few = expand(tmp_path, RATES, DATASET, rate_scale=0.1)
    assert sum(map(len, few)) == pytest.approx(135, abs=3)


@pytest.mark.parametrize(("shape", "weibull"), [(1.0, False), (0.3, False), (0.5, True), (2.0, True)])
def test_gaps_have_the_burstiness_of_the_window(shape: float, weibull: bool) -> None:
    rng = np.random.default_rng(1)
    draws = rng.weibull(shape, 200_000) if weibull else rng.gamma(shape, size=200_000)
    found = arrivals(20_000, shape, weibull, np.random.default_rng(2))
    gaps = np.diff(found)
    assert found.min() >= 0
    assert found.max() < 1
    assert gaps.std() / gaps.mean() == pytest.approx(draws.std() / draws.mean(), rel=0.1)


def test_media_count_as_prompt_tokens_and_single_clients_have_no_outer_key(tmp_path: Path) -> None:
    window = {"text_tokens": "{10: 1.0}", "image_tokens": "{5: 1.0}", "audio_tokens": "{0: 1.0}"}
    window["output_tokens"] = "{2: 1.0}"
    path = put(tmp_path / "d.json", orjson.dumps({"0": window, "600": {**window, "text_tokens": "{}"}}).decode())
    lengths = read_lengths(TextSource(path), ReadReport("x", "servegen"))
    rng = np.random.default_rng(0)
    assert [part.tolist() for part in lengths.draw("any", 0, rng, 2)] == [[15, 15], [2, 2]]
    assert [part.tolist() for part in lengths.draw("any", 600, rng, 1)] == [[5], [2]]


def test_quantiles_serve_as_lengths(tmp_path: Path) -> None:
    names = "client,window_s,what,support,mean,p1,p5,p10,p25,p50,p75,p90,p95,p99,min,max\n"
    rows = "7,0,input,9,1,110,120,130,140,150,160,170,180,190,100,200\n7,0,output,9,1,1,1,1,1,1,1,1,1,1,1,1\n"
    _, found = expand(tmp_path, RATES, names + rows)
    tokens = np.concatenate([batch.input_tokens for batch in found])
    assert 100 <= tokens.min() <= tokens.max() <= 200
    assert np.median(tokens) == pytest.approx(150, abs=3)


def test_bad_rows_are_counted(tmp_path: Path) -> None:
    rates = RATES + "7,1800,x,1,Gamma,1,1\n7,1800,1,1,Pareto,1,1\n7,1800,1,1,Gamma,0,1\n7,1800,-1,1,Gamma,1,1\n"
    report, _ = expand(tmp_path, rates, DATASET)
    assert report.rejected["bad_field"].lines == [8, 9, 10, 11]  # type: ignore[index]
    assert report.rows == report.accepted + report.rejected_rows


def test_what_cannot_be_expanded(tmp_path: Path) -> None:
    rates = put(tmp_path / "rates.csv", RATES)
    with pytest.raises(TraceError, match="rates, not requests"):
        list(open_trace(rates).batches())
    with pytest.raises(TraceError, match="windows differ in length"):
        expand(tmp_path, RATES + "9,1300,1,1,Gamma,1,1\n", DATASET)
    with pytest.raises(TraceError, match="smaller rate_scale"):
        expand(tmp_path, RATES, DATASET, rate_scale=1e6)
    with pytest.raises(TraceError, match="no length distribution"):
        expand(tmp_path, RATES, {"7": {"0": {"input_tokens": "{}", "output_tokens": "{}"}}})


@pytest.mark.parametrize("text", ["{1}", "{1: x}", "{a: 1}", "{1: 0}", "{1: -1, 2: 3}", "{1: 1e400}"])
def test_a_distribution_that_does_not_parse(tmp_path: Path, text: str) -> None:
    source = TextSource(put(tmp_path / "d", ""))
    with pytest.raises(TraceError, match="length distribution"):
        parse_distribution(text, source)


def test_drawn_lengths_follow_their_probabilities(tmp_path: Path) -> None:
    source = TextSource(put(tmp_path / "d", ""))
    found = parse_distribution("{ 1: 0.25, 500: 0.75 }", source)
    assert found is not None
    drawn = found.draw(np.random.default_rng(0), 40_000)
    assert set(drawn.tolist()) == {1, 500}
    assert np.mean(drawn == 500) == pytest.approx(0.75, abs=0.01)


QUANTILES = "client,window_s,what,mean,p1,p5,p10,p25,p50,p75,p90,p95,p99,min,max\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "header lacks"),
        ("{", "no ServeGen dataset"),
        ('{"7": {"x": {"output_tokens": "{1: 1}"}}}', "number of seconds"),
        ('{"7": {"0": 5}}', "must be an object"),
        (QUANTILES + "7,0,input,1,1,1\n", "bad_columns"),
        (QUANTILES + "7,0,input" + ",x" * 12 + "\n", "could not convert"),
        (QUANTILES + "7,0,input" + ",inf" * 12 + "\n", "finite"),
        (QUANTILES + "7,0,input" + ",1" * 12 + "\n", "no length distribution"),
    ],
)
def test_files_of_lengths_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        expand(tmp_path, RATES, text)
    assert str(tmp_path / "lengths") in str(caught.value)
