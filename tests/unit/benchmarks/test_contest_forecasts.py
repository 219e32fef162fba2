"""The forecaster of the placement contest looks backward only."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.bench_forecast import synthetic_rates
from benchmarks.fleet_contest.demand import DAY, HOUR, ContestDemand
from benchmarks.fleet_contest.forecasts import rolling_forecasts
from planner.demand import LEVELS


@pytest.mark.slow
def test_forecasts_do_not_depend_on_what_comes() -> None:
    keys = tuple(("chat@v1", "interactive", "anywhere", origin) for origin in ("east", "north", "west"))
    tokens = 100.0 * synthetic_rates(7, clients=3, days=4)
    change = 3 * DAY + 40
    other = tokens.copy()
    other[:, change:] *= 5.0
    first, second = (rolling_forecasts(ContestDemand(keys, one, ""), (2, 3)) for one in (tokens, other))
    assert first.shape == (4 * DAY, 3, HOUR, len(LEVELS))
    assert np.isnan(first[: 2 * DAY]).all()
    assert np.isfinite(first[2 * DAY :]).all()
    assert (first[2 * DAY : change + 1] == second[2 * DAY : change + 1]).all()
    assert (first[change + 1 :] != second[change + 1 :]).any()
    assert (np.diff(first[2 * DAY :], axis=-1) >= 0).all()
