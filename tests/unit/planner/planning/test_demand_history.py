"""Recorded demand: windows of a trace, a demand table with outages, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from data.errors import InputError, SettingError
from data.traces.report import ReadReport
from data.traces.servegen_lengths import read_lengths
from data.traces.servegen_rates import read_demand
from data.traces.source import TextSource
from data.types import TraceBatch
from planner.demand_history import Naming, history_from_trace, history_from_windows

NAMES = Naming(model="chat@v1", workload_class="batch", tenant="acme", origin="door")


def batch(arrivals: list[float], **columns: tuple[str, ...]) -> TraceBatch:
    count = len(arrivals)
    return TraceBatch(
        request_id=np.arange(count),
        arrival_s=np.array(arrivals),
        input_tokens=np.full(count, 100),
        output_tokens=np.full(count, 30),
        output_budget=np.full(count, 512),
        hash_offsets=np.zeros(count + 1, dtype=np.int64),
        hashes=np.zeros(0, dtype=np.uint64),
        **columns,
    )


def table(tmp_path: Path, rows: list[str]) -> Path:
    path = tmp_path / "rates.csv"
    path.write_text("client,start_s,rate_per_s,cv,dist,param1,param2\n" + "\n".join(rows) + "\n")
    return path


def test_a_trace_is_counted_in_whole_windows() -> None:
    found = history_from_trace([batch([0.0, 5.0, 12.0]), batch([31.0, 39.0])], NAMES, 10.0)
    assert found.keys == (("chat@v1", "batch", "acme", "door"),)
    assert found.requests_per_s.tolist() == [[0.2, 0.1, 0.0]]
    assert found.tokens_per_s.tolist() == [[6.0, 3.0, 0.0]]
    assert found.now_s == 30.0
    assert (found.input_tokens[0], found.output_tokens[0]) == pytest.approx((100.0, 30.0))
    assert found.history().names == ("requests|chat@v1/batch/acme/door", "tokens|chat@v1/batch/acme/door")


def test_names_of_the_trace_come_first_and_tenants_can_be_merged() -> None:
    both = batch([1.0, 2.0, 25.0], tenant=("a", "b", "a"))
    assert [key[2] for key in history_from_trace([both], NAMES, 10.0).keys] == ["a", "b"]
    merged = history_from_trace([both], Naming("m", "c", "", "o", one_tenant="all", scale=2.0), 10.0)
    assert merged.requests_per_s.tolist() == [[0.4, 0.0]]


def test_what_cannot_be_counted_is_refused() -> None:
    with pytest.raises(InputError, match="model: requests name none"):
        history_from_trace([batch([1.0, 25.0])], Naming(), 10.0)
    with pytest.raises(InputError, match="shorter than one window"):
        history_from_trace([batch([1.0])], NAMES, 10.0)
    with pytest.raises(SettingError, match="step_s"):
        history_from_trace([batch([1.0])], NAMES, 0.0)
    with pytest.raises(InputError, match="too many windows"):
        history_from_trace([batch([1.0, 1e9])], NAMES, 1.0)
    with pytest.raises(SettingError, match="scale"):
        Naming(scale=0.0)


def test_a_table_tells_outages_idle_clients_and_missing_windows_apart(tmp_path: Path) -> None:
    """F098: the tier at zero in window 2 and the window that is absent are unknown; an idle client is at 0."""
    rows = []
    for window in (0, 1, 2, 3, 5):
        for client in "abcd":
            busy = window != 2 and not (client == "d" and window == 3)
            rows.append(f"{client},{window * 600},{1.0 if busy else 0},1,{'Gamma' if busy else ''},1,1")
    demand = read_demand(TextSource(table(tmp_path, rows)), ReadReport("t", "servegen"))
    found = history_from_windows(demand, None, NAMES)
    own = dict(zip([key[2] for key in found.keys], found.requests_per_s.tolist(), strict=True))
    assert found.outage.tolist() == [False, False, True, False, True, False]
    assert own["a"] == pytest.approx([1, 1, np.nan, 1, np.nan, 1], nan_ok=True)
    assert own["d"] == pytest.approx([1, 1, np.nan, 0, np.nan, 1], nan_ok=True)
    assert any("outages" in note for note in found.notes)
    assert any("one token" in note for note in found.notes)


def test_tokens_follow_the_lengths_of_the_time(tmp_path: Path) -> None:
    rows = [f"{client},{window * 600},2,1,Gamma,1,1" for window in range(2) for client in "ab"]
    demand = read_demand(TextSource(table(tmp_path, rows)), ReadReport("t", "servegen"))
    lengths = tmp_path / "lengths.json"
    lengths.write_text(
        '{"a": {"0": {"input_tokens": "{100: 1.0}", "output_tokens": "{10: 0.5, 30: 0.5}"},'
        ' "600": {"input_tokens": "{100: 1.0}", "output_tokens": "{50: 1.0}"}}}'
    )
    found = history_from_windows(demand, read_lengths(TextSource(lengths), ReadReport("t", "x")), NAMES)
    assert found.tokens_per_s[0].tolist() == [40.0, 100.0]
    assert found.tokens_per_s[1].tolist() == [70.0, 70.0]
    assert found.input_tokens.tolist() == [100.0, 100.0]
    assert any("1 of 2 clients" in note for note in found.notes)


@pytest.mark.shared_data
def test_means_of_public_lengths_agree_with_their_draws(shared_data: Path) -> None:
    lengths = read_lengths(
        TextSource(shared_data / "servegen" / "m-mid.length_quantiles.day0-10.csv.gz"), ReadReport("t", "x")
    )
    means = lengths.means("60", 0.0)
    assert means is not None
    prompt, output = lengths.draw("60", 0.0, np.random.default_rng(0), 200_000)
    assert means == pytest.approx((prompt.mean(), output.mean()), rel=0.02)
