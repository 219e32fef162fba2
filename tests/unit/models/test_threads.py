"""One predictor serves many threads at once, and needs no boosting library to do so."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from models.training import Trained

THREADS, ROUNDS = 32, 8
LOADED = (
    "import sys, models.store, models.predictor, models.slot, router.tokenpilot; print('lightgbm' in sys.modules)"
)


def test_f073_answers_from_32_threads_are_those_of_one(toy_model: Trained) -> None:
    predictor = toy_model.predictor
    parts = np.array_split(toy_model.test.features[:1280], THREADS)
    alone = [predictor.predict(np.ascontiguousarray(part)) for part in parts]

    def ask(number: int) -> bool:
        part = np.ascontiguousarray(parts[number % THREADS])
        told, want = predictor.predict(part), alone[number % THREADS]
        return np.array_equal(told.ttft_s, want.ttft_s) and np.array_equal(told.tpot_s, want.tpot_s)

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(ask, range(THREADS * ROUNDS)))


def test_f073_nothing_of_the_booster_is_loaded_where_decisions_are_made_and_explained() -> None:
    """Explanations are parts of the score; per-feature contributions exist in training reports only."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "False"
