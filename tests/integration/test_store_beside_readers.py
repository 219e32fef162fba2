"""F078: two processes poll and load a model store while a third publishes and promotes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.training_log import kinds, write_log
from data.log.reader import LogReader
from models.gbm import BoostSettings
from models.samples import samples_from_tables
from models.store import ModelStore
from models.training import Trained, TrainingSettings, train

VERSIONS = 50
READER = """
import json, sys
from pathlib import Path
from data.errors import ModelError
from models.store import ModelStore

store = ModelStore(Path(sys.argv[1]))
loads, seen, faults, finished = 0, [], [], False
print("ready", flush=True)
while not finished:
    # Read before the load: once the last version has been promoted, everything after must show it.
    finished = (Path(sys.argv[1]) / "DONE").exists()
    try:
        current = store.current()
        if current is None:
            continue
        predictor = store.load()
        newest = store.versions()[-1]
        store.card(newest)
    except ModelError as error:
        faults.append(f"{error.reason}: {error}")
        continue
    loads += 1
    if predictor.version < current:
        faults.append(f"loaded {predictor.version} after {current} served")
    if not seen or seen[-1] != predictor.version:
        seen.append(predictor.version)
print(json.dumps({"loads": loads, "seen": seen, "faults": faults, "last": store.load().version}))
"""


@pytest.fixture(scope="module")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("made") / "log"
    write_log(folder, 2000)
    samples = samples_from_tables([LogReader(folder).window(0.0, 1e9)], kinds())
    return train(samples, TrainingSettings(boost=BoostSettings(mean_trees=5, quantile_trees=5)), "t")


def test_readers_never_meet_a_half_written_or_an_older_model(small_model: Trained, tmp_path: Path) -> None:
    store = ModelStore(tmp_path)
    last = f"v{VERSIONS:04d}"
    readers = [
        subprocess.Popen([sys.executable, "-c", READER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        for reader in readers:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "ready\n"
        for number in range(1, VERSIONS + 1):
            version = store.publish(small_model.card, small_model.forest, small_model.texts)
            assert version == f"v{number:04d}"
            store.promote(version)
            assert store.current() == version
        (tmp_path / "DONE").touch()
        told = [json.loads(reader.communicate(timeout=120)[0]) for reader in readers]
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()
    for got in told:
        assert got["faults"] == []
        assert got["seen"] == sorted(got["seen"]), "no reader ever went back to an older model"
        assert got["seen"][-1] == got["last"] == last
        assert got["loads"] >= 10
    assert store.history() == [f"v{number:04d}" for number in range(1, VERSIONS)]
