"""Parts of the fidelity benchmark that need no recordings."""

from __future__ import annotations

import math
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks.fidelity.adapter_study import BLOCK_TOKENS, KV_BLOCKS, StudyRun, kv_tokens, simulated
from benchmarks.fidelity.engine_series import Series
from benchmarks.fidelity.engines import engine_rows
from benchmarks.fidelity.h200_profile import profile_rows
from benchmarks.fidelity.rows import error_row
from benchmarks.fidelity.study_picture import drawing, panels
from benchmarks.fidelity.study_rows import compared, markdown

STEADY = StudyRun(2.0, 2.0, 200.0, 100.0, 0.02, 0.04, 4.0, 0.0, 0.01, 0.0, 100_000)


def test_an_error_row_leaves_unknown_points_out_and_is_judged_by_its_median() -> None:
    row = error_row("x", np.array([-0.02, 0.01, 0.5, np.nan]), target=0.02)
    assert (row["value"], row["signed"], row["worst"], row["points"]) == (0.02, 0.01, 0.5, 3)
    assert row["met"] is True
    assert error_row("x", np.array([-0.02]), target=0.01)["met"] is False
    assert error_row("x", np.array([-0.02]))["met"] is None


def test_memory_beside_adapter_slots_is_the_measured_one_and_falls_with_slots() -> None:
    assert [kv_tokens(slots) for slots in KV_BLOCKS] == [BLOCK_TOKENS * blocks for blocks in KV_BLOCKS.values()]
    found = [kv_tokens(slots) for slots in (8, 16, 24, 32, 96, 128)]
    assert found == sorted(found, reverse=True)
    assert kv_tokens(24) == pytest.approx((kv_tokens(16) + kv_tokens(32)) / 2, abs=BLOCK_TOKENS)


def test_a_series_is_read_between_its_points_and_is_empty_after_its_end() -> None:
    series = Series(np.array([0.0, 2.0]), np.array([[0.0, 4.0, 0.1], [2.0, 0.0, 0.3]]))
    assert series.at(np.array([1.0, 3.0])).tolist() == [[1.0, 2.0, pytest.approx(0.2)], [0.0, 0.0, 0.0]]


def test_a_run_of_the_study_gets_the_speed_of_its_tpot_and_the_front_ends_time() -> None:
    """The measured TPOT of 20 ms is three times the catalog's: the rest becomes host overhead."""
    lengths = np.array([[100.0, 50.0], [300.0, 150.0]])
    (one,), (other,) = (list(simulated([STEADY], lengths, front)) for front in (0.0, 0.007))
    assert 0.008 < one.overhead_s < 0.02
    assert other.ttft_s - one.ttft_s == pytest.approx(0.007)
    assert one.running == pytest.approx(STEADY.offered * STEADY.output * STEADY.tpot_s, rel=0.3)
    assert one.served == pytest.approx(STEADY.offered, rel=0.2)
    table = markdown([(one, other)]).splitlines()
    assert len(table) == 3
    assert table[2].startswith("| 2.0 | 20 | 4.0: ")
    picture = drawing(panels([(one, other)]))
    assert picture.count("<circle") == 4
    assert not math.isnan(float(ElementTree.fromstring(picture).attrib["font-size"]))


def test_without_recordings_there_are_no_rows(tmp_path: Path) -> None:
    assert list(engine_rows(tmp_path)) == []
    assert list(profile_rows(tmp_path / "none")) == []
    assert compared(tmp_path) == {}
