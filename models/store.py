"""Versioned store of trained models on a file system; every change is atomic.

::

    STORE/
      CURRENT                    JSON: the serving version and those that served before it
      versions/v0001/
        card.json                the model card
        forest.npz               flat trees (arrays only, never pickled objects)
        ttft_s-mean.txt, …       LightGBM's text of each forest: the oracle, and a way out
        SHA256SUMS               digest of every file above

A version appears whole (written aside, then renamed) and never changes. Loading verifies digests, schema and the
probe rows before it hands anything out.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from data.atomic_file import write_text_atomic
from data.errors import ModelError
from models.card import TARGETS, ModelCard
from models.compiled import Forest
from models.predictor import ResidualPredictor

SUMS = "SHA256SUMS"
PROBE_TOLERANCE = 1e-6
"""Relative difference that probe rows may show between machines."""
_ARRAYS = tuple(item.name for item in fields(Forest))


class ModelStore:
    """Models under one folder. Reading a store that does not exist yet finds it empty.

    Args:
        root: Folder of the store.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._versions = root / "versions"
        self._pointer = root / "CURRENT"

    def versions(self) -> list[str]:
        """All published versions, oldest first."""
        if not self._versions.is_dir():
            return []
        return sorted(path.name for path in self._versions.iterdir() if path.name.startswith("v"))

    def current(self) -> str | None:
        """The serving version, or ``None``."""
        return self._read_pointer()[0]

    def history(self) -> list[str]:
        """Versions that served before the current one, oldest first."""
        return self._read_pointer()[1]

    def path(self, version: str) -> Path:
        """Folder of a version; ``ModelError`` (reason ``missing``) if there is none."""
        path = self._versions / version
        if version not in self.versions():
            raise ModelError(f"{self.root}: no model version {version!r}", reason="missing")
        return path

    def publish(
        self,
        card: ModelCard,
        forest: Forest,
        texts: Sequence[str],
        verify: Callable[[Path], None] | None = None,
    ) -> str:
        """Write a new version and give its name. It does not serve until it is promoted.

        Args:
            card: Its ``version`` is replaced by the new name.
            forest: Flat trees.
            texts: LightGBM text of each forest output, in order.
            verify: Called with the folder before it appears; if it raises, nothing is published.
        """
        self._versions.mkdir(parents=True, exist_ok=True)
        while True:
            taken = [int(name[1:]) for name in self.versions() if name[1:].isdigit()]
            version = f"v{max(taken, default=0) + 1:04d}"
            aside = Path(tempfile.mkdtemp(prefix=".aside-", dir=self._versions))
            try:
                _write_version(aside, replace(card, version=version), forest, texts)
                aside.chmod(0o755)
                if verify is not None:
                    verify(aside)
                # Renaming onto a folder that is not empty fails: another publisher took the number meanwhile.
                aside.rename(self._versions / version)
            except OSError:
                if not (self._versions / version).exists():
                    raise
                continue
            finally:
                shutil.rmtree(aside, ignore_errors=True)
            _sync(self._versions)
            return version

    def card(self, version: str) -> ModelCard:
        """The card of a version, its digest verified."""
        return _read_card(self.path(version))

    def load(self, version: str | None = None) -> ResidualPredictor:
        """The predictor of a version (the serving one by default), verified.

        Raises:
            ModelError: With the reason ``missing``, ``checksum``, ``format``, ``schema`` or ``probe``.
        """
        version = version or self.current()
        if version is None:
            raise ModelError(f"{self.root}: no model has been promoted", reason="missing")
        return load_version(self.path(version))

    def promote(self, version: str) -> None:
        """Make a version serve, after loading it as a router would."""
        self.load(version)
        current, history = self._read_pointer()
        if version != current:
            self._write_pointer(version, [*history, current] if current else history)

    def rollback(self) -> str:
        """Make the version that served before serve again, and give its name."""
        history = self.history()
        if not history:
            raise ModelError(f"{self.root}: no earlier model to roll back to", reason="missing")
        self.load(history[-1])
        self._write_pointer(history[-1], history[:-1])
        return history[-1]

    def _read_pointer(self) -> tuple[str | None, list[str]]:
        try:
            raw = json.loads(self._pointer.read_text())
            return str(raw["version"]), [str(name) for name in raw["history"]]
        except FileNotFoundError:
            return None, []
        except (ValueError, KeyError, TypeError) as error:
            raise ModelError(f"{self._pointer}: not a pointer file: {error!r}", reason="format") from error

    def _write_pointer(self, version: str, history: list[str]) -> None:
        write_text_atomic(self._pointer, json.dumps({"version": version, "history": history}) + "\n")
        _sync(self.root)


def load_version(path: Path) -> ResidualPredictor:
    """Load one version's folder: digests, then schema, then probe rows; see :meth:`ModelStore.load`."""
    card = _read_card(path)
    predictor = ResidualPredictor(card, _read_forest(path / "forest.npz"))
    check_probe(predictor)
    return predictor


def check_probe(predictor: ResidualPredictor) -> None:
    """Raise ``ModelError`` (reason ``probe``) unless the probe rows give the card's answers."""
    probe = predictor.card.probe
    got = predictor.predict(np.array(probe.features, dtype=np.float64))
    for target in TARGETS:
        want = np.array(getattr(probe, target))
        have = getattr(got, target)
        same = np.isclose(have, want, rtol=PROBE_TOLERANCE, atol=0.0).all(axis=1)
        if not same.all():
            row = int(np.flatnonzero(~same)[0])
            message = f"probe row {row}: {target} is {have[row].tolist()}, expected {want[row].tolist()}"
            raise ModelError(message, reason="probe")


def _write_version(folder: Path, card: ModelCard, forest: Forest, texts: Sequence[str]) -> None:
    (folder / "card.json").write_text(card.to_json())
    with (folder / "forest.npz").open("wb") as file:
        arrays: dict[str, Any] = {name: np.asarray(getattr(forest, name)) for name in _ARRAYS}
        np.savez_compressed(file, **arrays)
    for name, text in zip(_text_names(card), texts, strict=True):
        (folder / name).write_text(text)
    sums = "".join(f"{_digest(path)}  {path.name}\n" for path in sorted(folder.iterdir()))
    (folder / SUMS).write_text(sums)
    for path in folder.iterdir():
        _sync(path)


def _text_names(card: ModelCard) -> list[str]:
    parts = ["mean", *(f"q{level:g}" for level in card.quantiles)]
    return [f"{target}-{part}.txt" for target in TARGETS for part in parts]


def _read_card(folder: Path) -> ModelCard:
    _verify_digests(folder)
    return ModelCard.from_json((folder / "card.json").read_text())


def _verify_digests(folder: Path) -> None:
    """Raise ``ModelError`` (reason ``checksum``) unless the folder holds exactly what was published."""
    try:
        lines = (folder / SUMS).read_text().splitlines()
    except OSError as error:
        raise ModelError(f"{folder}: no digests: {error}", reason="checksum") from error
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    present = {path.name for path in folder.iterdir()} - {SUMS}
    if set(listed) != present or not {"card.json", "forest.npz"} <= present:
        odd = ", ".join(sorted(set(listed) ^ present)) or "card.json, forest.npz"
        raise ModelError(f"{folder}: missing or foreign files: {odd}", reason="checksum")
    for name, digest in listed.items():
        if _digest(folder / name) != digest:
            raise ModelError(f"{folder / name}: damaged (digest differs)", reason="checksum")


def _read_forest(path: Path) -> Forest:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            parts: dict[str, Any] = {name: arrays[name] for name in _ARRAYS}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"{path}: not a forest: {error}", reason="format") from error
    parts |= {name: int(parts[name]) for name in ("outputs", "features")}
    return Forest(**parts)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
