"""The model store: atomic, verified, reversible."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data.errors import ModelError
from models.card import ModelCard
from models.physics import PriorPredictor
from models.slot import PredictorSlot
from models.store import SUMS, ModelStore
from models.training import Trained


@pytest.fixture
def store(toy_model: Trained, tmp_path: Path) -> ModelStore:
    """Two versions, v0001 serving."""
    store = ModelStore(tmp_path / "store")
    for _ in range(2):
        store.publish(toy_model.card, toy_model.forest, toy_model.texts)
    store.promote("v0001")
    return store


def resign(folder: Path) -> None:
    """Write fitting digests, as one who tampers knowingly would."""
    import hashlib

    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    (folder / SUMS).write_text(sums)


def edit_card(folder: Path, **changes: object) -> None:
    card = json.loads((folder / "card.json").read_text())
    (folder / "card.json").write_text(json.dumps(card | changes))
    resign(folder)


def test_publish_load_round_trip(store: ModelStore, toy_model: Trained) -> None:
    assert store.versions() == ["v0001", "v0002"]
    loaded = store.load()
    assert loaded.version == "v0001"
    rows = toy_model.test.features
    np.testing.assert_array_equal(loaded.predict(rows).ttft_s, toy_model.predictor.predict(rows).ttft_s)
    assert loaded.predict(rows).source == "v0001"


def test_promote_and_roll_back(store: ModelStore) -> None:
    store.promote("v0002")
    store.promote("v0002")
    assert (store.current(), store.history()) == ("v0002", ["v0001"])
    assert store.rollback() == "v0001"
    assert (store.current(), store.history()) == ("v0001", [])
    with pytest.raises(ModelError, match="no earlier model"):
        store.rollback()
    with pytest.raises(ModelError, match="no model version 'v0009'"):
        store.promote("v0009")
    with pytest.raises(ModelError, match=r"no model version '\.\./x'"):
        store.load("../x")


def test_empty_store(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "none")
    assert store.versions() == []
    assert store.current() is None
    with pytest.raises(ModelError, match="no model has been promoted") as caught:
        store.load()
    assert caught.value.reason == "missing"
    (tmp_path / "CURRENT").write_text("v1")
    with pytest.raises(ModelError, match="not a pointer file"):
        ModelStore(tmp_path).current()


def test_f078_truncated_and_lying_versions_are_refused_and_the_old_keeps_serving(store: ModelStore) -> None:
    slot = PredictorSlot(PriorPredictor())
    assert slot.reload(store.load)
    assert slot.version == "v0001"
    forest = store.path("v0002") / "forest.npz"
    whole = forest.read_bytes()
    forest.write_bytes(whole[: len(whole) * 6 // 10])
    assert not slot.reload(lambda: store.load("v0002"))
    forest.write_bytes(whole)
    folder = store.path("v0002")
    card = json.loads((folder / "card.json").read_text())
    card["probe"]["ttft_s"][3] = [value / 10 for value in card["probe"]["ttft_s"][3]]
    edit_card(folder, probe=card["probe"])
    assert not slot.reload(lambda: store.load("v0002"))
    assert slot.version == "v0001"
    assert dict(slot.reload_failures) == {"checksum": 1, "probe": 1}
    assert "probe row 3" in str(slot.last_error)
    with pytest.raises(ModelError):
        store.promote("v0002")
    assert store.current() == "v0001"


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda folder: (folder / "card.json").write_text("{}"), "format"),
        (lambda folder: (folder / "card.json").write_text("no json"), "format"),
        (lambda folder: edit_card(folder, schema_version=99), "schema"),
        (lambda folder: edit_card(folder, surprise=1), "format"),
        (lambda folder: edit_card(folder, features=["a", "b"]), "schema"),
        (lambda folder: edit_card(folder, schema_hash="00"), "schema"),
        (lambda folder: edit_card(folder, probe=3), "format"),
        (lambda folder: (folder / "forest.npz").write_bytes(b"PK\x03\x04 foreign"), "format"),
        (lambda folder: np.savez(folder / "forest.npz", other=np.zeros(3)), "format"),
        (lambda folder: np.savez(folder / "forest.npz", root=np.array([{}], dtype=object)), "format"),
    ],
)
def test_f077_f078_foreign_files_raise_model_error(store: ModelStore, damage: object, reason: str) -> None:
    """Even with fitting digests."""
    folder = store.path("v0002")
    damage(folder)  # type: ignore[operator]
    resign(folder)
    with pytest.raises(ModelError) as caught:
        store.load("v0002")
    assert caught.value.reason == reason


def test_f078_missing_and_added_files_are_noticed(store: ModelStore) -> None:
    folder = store.path("v0002")
    (folder / "notes.txt").write_text("hello")
    with pytest.raises(ModelError, match=r"notes\.txt") as caught:
        store.load("v0002")
    assert caught.value.reason == "checksum"
    (folder / "notes.txt").unlink()
    (folder / SUMS).unlink()
    with pytest.raises(ModelError, match="no digests"):
        store.load("v0002")


def test_a_writer_that_dies_leaves_nothing_visible(toy_model: Trained, tmp_path: Path) -> None:
    store = ModelStore(tmp_path)

    def die(_: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.publish(toy_model.card, toy_model.forest, toy_model.texts, verify=die)
    assert store.versions() == []
    # A folder left by a killed process is never taken for a version.
    (tmp_path / "versions" / ".aside-left").mkdir()
    assert store.publish(toy_model.card, toy_model.forest, toy_model.texts) == "v0001"


def test_two_publishers_never_share_a_number(
    toy_model: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one sees the list as it was before the first one renamed."""
    store = ModelStore(tmp_path)
    store.publish(toy_model.card, toy_model.forest, toy_model.texts)
    truth = store.versions
    answers = [[], truth()]
    monkeypatch.setattr(store, "versions", lambda: answers.pop(0) if answers else truth())
    assert store.publish(toy_model.card, toy_model.forest, toy_model.texts) == "v0002"
    assert truth() == ["v0001", "v0002"]


def test_f079_verify_load_command(store: ModelStore) -> None:
    command = [sys.executable, "-m", "models.verify_load", str(store.path("v0002"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "v0002")
    (store.path("v0002") / "card.json").write_text("{}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "checksum" in done.stderr


def test_card_round_trip_keeps_missing_numbers(toy_model: Trained) -> None:
    card = replace(toy_model.card, version="v7")
    again = ModelCard.from_json(card.to_json())
    assert again.version == "v7"
    assert again.base == card.base
    assert again.probe == card.probe
    assert again.to_json() == card.to_json()
