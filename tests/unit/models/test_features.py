"""Feature schema, equality of training and serving rows, reconciliation of reports."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pyarrow as pa
import pytest

from data.catalog.types import ServiceTimes
from data.errors import ModelError, SettingError
from data.types import Slo
from models.base import CategoryCodes
from models.features import (
    INDEX,
    LEARNED,
    NAMES,
    RISING,
    UNITS,
    EndpointKind,
    check_schema,
    hardware_rows,
    schema_hash,
)
from models.samples import SIGNALS, codes_of, samples_from_tables
from models.signals import PREFILL_LOAD_HALF_LIFE_S, UNREPORTED_AGE_S, Signals, SignalSettings, observe
from router.candidate_features import CandidateFeatures, endpoint_kinds
from router.endpoints import EndpointSpec, EndpointTable
from router.types import FleetView, RouteRequest

TIMES = ServiceTimes(
    p0=0.01, p1=1e-4, p2=1e-9, d0=0.01, d1=1e-4, d2=1e-8, host_overhead=0.002, d_sat=0.01, sat_batch=8.0
)
ALL = np.arange(2)


def make_table() -> EndpointTable:
    spec = EndpointSpec("B/c/0", "B", "m@1", "c", "H100", 2, TIMES, 100_000, 4096, 64, 32_768)
    return EndpointTable([spec, dataclasses.replace(spec, endpoint_id="B/c/1", gpu_type="L40S")])


def make_request() -> RouteRequest:
    return RouteRequest(7, "m@1", "t", "interactive", "A", 1000, 512, 100.0, (), 16, "", Slo(ttft_s=1.0))


class NoPrefixes:
    def matched_blocks(self, block_hashes: tuple[int, ...]) -> np.ndarray:
        return np.zeros(2, dtype=np.int64)


def signals_at(table: EndpointTable, now_s: float) -> Signals:
    return observe(table, ALL, now_s, SignalSettings())


def test_f077_schema_names_the_column_that_differs() -> None:
    names, units = list(NAMES), list(UNITS.values())
    check_schema(names, units)
    swapped = [names[1], names[0], *names[2:]]
    with pytest.raises(ModelError, match="column 0 should be 'input_tokens'") as caught:
        check_schema(swapped, units)
    assert caught.value.reason == "schema"
    with pytest.raises(ModelError, match=f"{names[-1]!r}, found 'nothing'"):
        check_schema(names[:-1], units[:-1])
    with pytest.raises(ModelError, match="should be in s, found ms"):
        check_schema(names, ["ms" if unit == "s" else unit for unit in units])
    with pytest.raises(ModelError, match="unknown feature column 'extra'"):
        check_schema([*names, "extra"], [*units, "s"])


def test_schema_hash_depends_on_units(monkeypatch: pytest.MonkeyPatch) -> None:
    before = schema_hash.__wrapped__()
    monkeypatch.setitem(UNITS, "waiting_prefill_s", "ms")
    assert re.fullmatch(r"[0-9a-f]{64}", before)
    assert schema_hash.__wrapped__() != before


def test_rising_features_are_learned_and_hits_are_not() -> None:
    assert set(RISING) <= set(LEARNED)
    assert (
        "hit_tokens" not in LEARNED
    )  # F080: else more uncached tokens at a fixed prompt could lower a prediction


def test_serving_and_training_build_the_same_rows() -> None:
    """The row of the router's table equals the row that the log of the same moment gives."""
    table, request = make_table(), make_request()
    table.reported_at_s[:] = 99.75
    table.running[:], table.waiting[:], table.kv_use[:] = [4, 7], [1, 0], [0.5, 0.25]
    table.inflight[:], table.decoding[:] = [6, 7], [4, 7]
    table.inflight_uncached_tokens[:], table.waiting_prefill_s[:] = [1536, 0], [0.25, 0]
    table.prefill_since_s[:] = [99.5, 80.0]
    table.recent_prefill_s[:], table.recent_prefill_at_s[:] = [6.0, 0.0], [90.0, 0.0]
    table.inflight_tokens[:], table.sent_since_report[:] = [8192, 4096], [1, 0]
    table.sent_uncached_since_report[:] = [1000, 0]
    view = FleetView(100.0, table, NoPrefixes(), np.zeros(2))
    kinds = {(kind.model, kind.gpu_type, 2): kind for kind in endpoint_kinds(table)}
    codes = codes_of(kinds)  # type: ignore[arg-type]
    served = CandidateFeatures(table, codes).build(request, ALL, np.array([256.0, 0.0]), view, codes)

    seen = signals_at(table, 100.0)
    log = {
        "model": ["m@1"] * 2,
        "gpu_type": ["H100", "L40S"],
        "gpus": [2, 2],
        "decided_s": [100.0, 100.0],
        "status": [0, 0],
        "ttft_s": [0.5, 0.6],
        "e2e_s": [1.0, 1.0],
        "tpot_s": [0.01, 0.01],
        "output_tokens": [9, 9],
        "input_tokens": [1000, 1000],
        "hit_tokens": [256, 0],
        "output_budget": [512, 512],
        "expected_output_tokens": [100.0, 100.0],
        "batch_token_budget": [4096, 4096],
    } | {name: getattr(seen, name) for name in SIGNALS}
    trained = samples_from_tables([pa.table(log)], kinds).features  # type: ignore[arg-type]
    np.testing.assert_array_equal(trained, served)
    assert served.flags["C_CONTIGUOUS"]
    assert served[0, INDEX["uncached_tokens"]] == 744
    load = 6.0 * 2.0 ** (-10.0 / PREFILL_LOAD_HALF_LIFE_S) * np.log(2.0) / PREFILL_LOAD_HALF_LIFE_S
    assert served[:, INDEX["prefill_load"]].tolist() == pytest.approx([load, 0.0])


def test_unknown_categories_are_minus_one() -> None:
    codes = CategoryCodes(("H100",), ("m@1",))
    kinds = [
        EndpointKind("H100", 1, "m@1", 1, 1, TIMES),
        EndpointKind("B300", 1, None, 1, 1, TIMES, role="odd"),
    ]
    columns = {name: INDEX[name] - INDEX["gpu_type"] for name in ("gpu_type", "model", "role")}
    rows = hardware_rows(kinds, codes)
    assert [rows[0, column] for column in columns.values()] == [0, 0, 0]
    assert [rows[1, column] for column in columns.values()] == [-1, -1, -1]


def test_own_work_counts_at_once_and_only_once() -> None:
    table = make_table()
    table.reported_at_s[:] = 10.0
    table.running[:], table.waiting[:] = [3, 3], [0, 0]
    table.inflight[:], table.decoding[:] = [5, 3], [3, 3]
    table.sent_since_report[:] = [2, 0]
    seen = signals_at(table, 10.2)
    assert seen.queue_depth.tolist() == [2, 0]
    assert seen.running.tolist() == [3, 3]


def test_load_of_other_routers_shows_and_fades() -> None:
    table = make_table()
    table.reported_at_s[:] = 10.0
    table.running[:], table.waiting[:], table.kv_use[:] = 8, 4, 0.5
    fresh, old = signals_at(table, 10.1), signals_at(table, 60.0)
    assert fresh.running.tolist() == [8, 8]
    assert fresh.queue_depth.tolist() == [4, 4]
    assert fresh.waiting_prefill_tokens.tolist() == [4096, 4096]
    assert fresh.kv_use.tolist() == [0.5, 0.5]
    assert (old.running < 1e-6).all()
    assert (old.kv_use < 1e-6).all()
    assert old.metrics_age_s.tolist() == [50, 50]


def test_f001_without_any_report_only_local_counts_speak() -> None:
    table = make_table()
    table.inflight[:] = [3, 1]
    seen = signals_at(table, 5.0)
    assert seen.queue_depth.tolist() == [3, 1]
    assert seen.metrics_age_s.tolist() == [UNREPORTED_AGE_S] * 2
    assert all(np.isfinite(column).all() and (column >= 0).all() for column in seen.load())


def test_a_clock_that_steps_back_gives_age_zero() -> None:
    table = make_table()
    table.reported_at_s[:] = 10.0
    assert signals_at(table, 9.0).metrics_age_s.tolist() == [0, 0]


@pytest.mark.parametrize("name", ["fresh_s", "half_life_s", "foreign_prompt_tokens"])
def test_signal_settings_are_checked(name: str) -> None:
    with pytest.raises(SettingError, match=name):
        SignalSettings(**{name: -1.0})
