"""Laws of the drift monitor: bounded memory, groups that do not touch each other, order of arrival in a batch."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from models.base import CategoryCodes
from models.drift import DriftMonitor, DriftSettings, ErrorBatch

CODES = CategoryCodes(("A", "B", "C"), ("m@1",))
ROW = st.tuples(st.integers(-1, 2), st.integers(0, 3), st.floats(-3, 3), st.sampled_from([0.0, 1.0, float("nan")]))
ROWS = st.lists(ROW, min_size=1, max_size=80)
SETTINGS = DriftSettings(window=20, least=5, certainty=1.0)


def batch(rows: list[tuple[int, int, float, float]], target: int) -> ErrorBatch:
    gpu, band, error, covered = (np.array(column) for column in zip(*rows, strict=True))
    n = len(rows)
    return ErrorBatch(target, gpu, band, np.arange(n, dtype=float), error, covered, np.ones(n))


def monitor(*batches: ErrorBatch) -> DriftMonitor:
    watching = DriftMonitor(SETTINGS)
    watching.follow("v1", CODES)
    for one in batches:
        watching.add(one)
    return watching


@given(ROWS, st.integers(0, 1))
@settings(max_examples=60, deadline=None)
def test_groups_do_not_touch_each_other(rows: list[tuple[int, int, float, float]], target: int) -> None:
    together = {(g.gpu_type, g.band): g for g in monitor(batch(rows, target)).groups()}
    for gpu, name in enumerate(CODES.gpu_types):
        mine = [row if row[0] == gpu else (-1, *row[1:]) for row in rows]
        alone = {(g.gpu_type, g.band): g for g in monitor(batch(mine, target)).groups()}
        for key in [key for key in together if key[0] == name]:
            assert (alone[key].state, alone[key].bias) == (together[key].state, together[key].bias)


@given(ROWS)
@settings(max_examples=60, deadline=None)
def test_never_more_outcomes_than_the_window_and_states_agree(rows: list[tuple[int, int, float, float]]) -> None:
    watching = monitor(batch(rows, 0), batch(rows, 1), batch(rows, 0))
    groups = watching.groups()
    assert all(1 <= group.outcomes <= SETTINGS.window for group in groups)
    assert watching.any_drifted == any(group.state == "drifted" for group in groups)
    assert watching.alarms - watching.recoveries == sum(group.state == "drifted" for group in groups)
    assert not watching.drifted(np.full(4, -1), np.arange(4)).any()
