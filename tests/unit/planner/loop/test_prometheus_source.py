"""Counters on a real HTTP server: zero, missing and reset told apart; silence is never zero."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.errors import SettingError
from data.fleet.types import Fleet
from planner.demand_history import Naming
from planner.loop.prometheus import PrometheusError, RangeSeries, parse_range, query_range
from planner.loop.prometheus_source import LABELS, PrometheusSource, recorded_counters

STEP_S, WINDOWS = 60.0, 12
NOW_S = 1_800_000_000.0
Values = list[float | None]
Answer = Callable[[dict[str, str]], tuple[int, bytes]]


class Server(ThreadingHTTPServer):
    """A Prometheus of one answer."""

    answer: Answer
    asked: list[dict[str, str]]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        self.server.asked.append({"path": self.path, **form})
        status, answer = self.server.answer(form)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    def log_message(self, format: str, *arguments: object) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), Handler)
    made.asked = []
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def address(server: Server) -> str:
    return f"http://127.0.0.1:{server.server_port}"


def matrix(form: dict[str, str], series: list[tuple[dict[str, str], Values]]) -> bytes:
    """What a server answers: samples at the moments asked for, none where the value is ``None``."""
    start, step = float(form["start"]), float(form["step"])
    result = [
        {
            "metric": labels,
            "values": [[start + i * step, str(v)] for i, v in enumerate(values) if v is not None],
        }
        for labels, values in series
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def source(server: Server) -> PrometheusSource:
    return PrometheusSource(address(server), step_s=STEP_S, history_s=STEP_S * WINDOWS, timeout_s=5.0)


def growing(rate: float, count: int = WINDOWS + 1) -> Values:
    return [1000.0 + rate * STEP_S * i for i in range(count)]


TENANT = {"tenant": "acme", "instance": "r1"}


def test_a_steady_counter_is_its_rate(server: Server, fleet: Fleet) -> None:
    server.answer = lambda form: (200, matrix(form, [(TENANT, growing(500.0))]))
    table = source(server).demand(fleet, NOW_S, 120.0)
    assert [row.key for row in table.rows] == [("chat@v1", "interactive", "acme", "eu-1")]
    assert table.rows[0].median == pytest.approx(500.0, rel=0.05)
    assert table.missing == ()
    asked = server.asked[0]
    assert (asked["path"], asked["query"]) == ("/api/v1/query_range", "tokenfleet_router_output_tokens_total")


def test_a_counter_that_stands_still_is_zero_f098(server: Server, fleet: Fleet) -> None:
    """F098, case 1: traffic of zero, known."""
    server.answer = lambda form: (200, matrix(form, [(TENANT, [5120.0] * (WINDOWS + 1))]))
    table = source(server).demand(fleet, NOW_S, 120.0)
    assert (table.rows[0].median, table.missing) == (0.0, ())


def test_a_counter_without_samples_is_missing_f098(server: Server, fleet: Fleet) -> None:
    """F098, case 2: the series ends; its model is held."""
    values = [*growing(500.0)[:-2], None, None]
    server.answer = lambda form: (200, matrix(form, [(TENANT, values)]))
    table = source(server).demand(fleet, NOW_S, 120.0)
    assert table.held_models() == {"chat@v1"}


def test_a_counter_that_fell_was_reset_f098(server: Server, fleet: Fleet) -> None:
    """F098, case 3: 512,000 → 1,200 is an increase of 1,200, never a negative rate."""
    values: Values = [*growing(500.0)[:-1], 1200.0]
    server.answer = lambda form: (200, matrix(form, [(TENANT, values)]))
    times = (np.arange(WINDOWS + 1) - WINDOWS) * STEP_S + NOW_S
    series = [RangeSeries(TENANT, np.array(values, dtype=np.float64))]
    recorded = recorded_counters(series, times, source(server).names(fleet), dict(LABELS))
    assert recorded.tokens_per_s[0, -1] == pytest.approx(20.0)
    table = source(server).demand(fleet, NOW_S, 120.0)
    assert any("reset" in note for note in table.notes)
    assert all(q >= 0 for row in table.rows for q in row.quantiles)


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (200, b'{"status": "success", "data": {"resultType": "matrix", "result": []}}', "no series"),
        (400, b'{"status": "error", "error": "parse error"}', "parse error"),
        (502, b"<html>bad gateway</html>", "502"),
        (200, b"<html>hello</html>", "cannot be read"),
        (200, b'{"status": "success", "data": {"resultType": "vector", "result": []}}', "not a range"),
        (200, b'{"status": "success"}', "cannot be read"),
        (200, b"[1, 2]", "cannot be read"),
        (302, b"", "302"),
    ],
)
def test_an_answer_without_data_is_unknown_and_never_zero_f115(
    server: Server, fleet: Fleet, status: int, body: bytes, why: str
) -> None:
    """F115: an empty or failed query is an error of the source, not a demand of 0."""
    server.answer = lambda form: (status, body)
    with pytest.raises(PrometheusError, match=why):
        source(server).demand(fleet, NOW_S, 120.0)


def test_a_server_that_hangs_costs_its_deadline_and_no_more(server: Server) -> None:
    gate = threading.Event()

    def hang(form: dict[str, str]) -> tuple[int, bytes]:
        gate.wait(10.0)
        return 200, b"{}"

    server.answer = hang
    began = time.monotonic()
    with pytest.raises(PrometheusError, match=r"no answer within 0\.2 s"):
        query_range(address(server), "x", np.array([0.0, 1.0]), 0.2)
    gate.set()
    assert time.monotonic() - began < 5.0


def test_nobody_there_is_unknown_too() -> None:
    with pytest.raises(PrometheusError, match="cannot be asked"):
        query_range("http://127.0.0.1:9", "x", np.array([0.0, 1.0]), 2.0)


def test_good_tokens_over_all_tokens_is_the_service(server: Server, fleet: Fleet) -> None:
    def both(form: dict[str, str]) -> tuple[int, bytes]:
        rate = 90_000.0 if "met=" in form["query"] else 120_000.0
        return 200, matrix(form, [(TENANT, [1000.0, 1000.0 + rate])])

    server.answer = both
    level = source(server).level(fleet, NOW_S - 600, NOW_S)
    assert level is not None
    assert level.good_share == pytest.approx(0.75)
    assert level.offered_tokens_per_s == pytest.approx(200.0)
    server.answer = lambda form: (200, matrix(form, []))
    assert source(server).level(fleet, NOW_S - 600, NOW_S) is None, "no data is no service level"


def test_instances_add_up_and_a_new_one_counts_from_its_first_sample() -> None:
    times = np.arange(4) * 10.0
    old = RangeSeries({**TENANT, "instance": "a"}, np.array([0.0, 100.0, 200.0, 300.0]))
    new = RangeSeries({**TENANT, "instance": "b"}, np.array([np.nan, np.nan, 5000.0, 5100.0]))
    naming = Naming("chat@v1", "interactive", "", "eu-1")
    recorded = recorded_counters([old, new], times, naming, dict(LABELS))
    assert recorded.tokens_per_s.tolist() == [[10.0, 10.0, 20.0]]


values = st.lists(st.one_of(st.floats(0, 1e9), st.just(float("nan"))), min_size=5, max_size=5)


@given(st.lists(values, min_size=1, max_size=4))
def test_no_counters_give_a_negative_or_infinite_rate(counters: list[list[float]]) -> None:
    times = np.arange(5) * 10.0
    series = [RangeSeries({"tenant": f"t{i}"}, np.array(one)) for i, one in enumerate(counters)]
    recorded = recorded_counters(series, times, Naming("m", "c", "", "o"), dict(LABELS))
    known = recorded.tokens_per_s[~np.isnan(recorded.tokens_per_s)]
    assert (known >= 0).all()
    assert np.isfinite(known).all()
    for i, one in enumerate(counters):
        for window in range(4):
            unknown = np.isnan(one[window]) or np.isnan(one[window + 1])
            row = recorded.keys.index(("m", "c", f"t{i}", "o"))
            assert np.isnan(recorded.tokens_per_s[row, window]) == unknown


def test_samples_that_are_no_numbers_are_unknown() -> None:
    result = [{"metric": {}, "values": [[0, "NaN"], [10, "+Inf"]]}]
    body = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()
    series = parse_range(body, np.array([0.0, 10.0]), "x")
    assert np.isnan(series[0].values).all()


def test_settings_are_checked() -> None:
    for wrong in ({"url": "prometheus:9090"}, {"timeout_s": 0.0}, {"step_s": 0.1}, {"history_s": 1.0}):
        with pytest.raises(SettingError):
            PrometheusSource(**{"url": "http://x", **wrong})  # type: ignore[arg-type]
