"""A log read a window at a time gives the samples of the log read at once, wherever they are held."""

from __future__ import annotations

import shutil
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.training_log import kinds, write_log
from data.errors import LogError, ModelError
from data.log.reader import LogReader
from models.gbm import BoostSettings
from models.samples import Samples, samples_from_tables
from models.training import TrainingSettings, thinned, train, train_stock
from models.training_backend import LocalBackend
from planner.log_samples import log_parts

ROWS = 6000
SETTINGS = TrainingSettings(boost=BoostSettings(mean_trees=10, quantile_trees=10))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two and a half hours of a made-up fleet."""
    folder = tmp_path_factory.mktemp("made") / "log"
    write_log(folder, ROWS, rate_per_s=ROWS / 9000.0)
    return folder


def whole(log: Path) -> Samples:
    return samples_from_tables([LogReader(log).window(0.0, 1e9)], kinds())


def test_windows_together_are_the_whole(log: Path) -> None:
    parts = log_parts([log], kinds(), (0.0, 1e9))
    assert len(parts) == 3
    told: list[int] = []
    stock = LocalBackend().read(parts, lambda: told.append(1))
    assert len(told) == 3
    wanted, got = whole(log), stock.take(np.ones(ROWS, dtype=bool))
    for field in fields(Samples):
        np.testing.assert_array_equal(getattr(got, field.name), getattr(wanted, field.name), err_msg=field.name)
    assert stock.facts.censored == int(np.isnan(wanted.ttft_s).sum()) > 0


def test_training_on_windows_gives_the_same_bytes(log: Path) -> None:
    stock = LocalBackend().read(log_parts([log], kinds(), (0.0, 1e9)))
    steps: list[str] = []
    got, wanted = train_stock(stock, SETTINGS, "t", steps.append), train(whole(log), SETTINGS, "t")
    assert got.texts == wanted.texts
    assert got.card.to_json() == wanted.card.to_json()
    assert steps == ["fit", "compile", "calibrate", "check and measure"]
    assert len(got.fit_sample) == pytest.approx(0.6 * ROWS, rel=0.01)


def test_counts_of_rows_left_out_are_added_up(log: Path) -> None:
    few = {key: kind for key, kind in kinds().items() if key[1] != "H100"}
    stock = LocalBackend().read(log_parts([log], few, (0.0, 1e9)))
    assert stock.facts.dropped["unknown_hardware"] + len(stock.facts.run) == ROWS
    with pytest.raises(ModelError, match=f"no usable latency sample; left out: {{'unknown_hardware': {ROWS}}}"):
        LocalBackend().read([replace(part, kinds={}) for part in log_parts([log], few, (0.0, 1e9))])


def test_each_log_is_a_run(log: Path) -> None:
    parts = log_parts([log, log], kinds(), (0.0, 3600.0))
    assert [(part.run, part.window) for part in parts] == [(0, (0.0, 3600.0)), (1, (0.0, 3600.0))]
    stock = LocalBackend().read(parts)
    assert np.unique(stock.facts.run).tolist() == [0, 1]


def test_no_log_and_no_window(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no log here"):
        log_parts([tmp_path], {}, (0.0, 1.0))
    with pytest.raises(ModelError, match="no usable latency sample"):
        LocalBackend().read([])


def test_skipped_files_are_told(log: Path, tmp_path: Path) -> None:
    broken = tmp_path / "log"
    shutil.copytree(log, broken)
    file = next((broken / "decisions").glob("hour=1970010102/*"))
    good = next((broken / "decisions").glob("hour=1970010101/*"))
    (file.parent / f"{good.stem}1.parquet").write_bytes(b"PAR1")
    stock = LocalBackend().read(log_parts([broken], kinds(), (0.0, 1e9)))
    assert list(stock.facts.skipped) == [str(file.parent / f"{good.stem}1.parquet")]
    assert len(stock.facts.run) == ROWS


def test_thinning_is_even_and_keeps_what_is_few() -> None:
    rows = np.zeros(1000, dtype=bool)
    rows[100:900] = True
    few = thinned(rows, 80)
    assert few.sum() == 80
    assert not few[~rows].any()
    assert np.diff(np.flatnonzero(few)).max() <= 11
    assert thinned(rows, 800) is rows
