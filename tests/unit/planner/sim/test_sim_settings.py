"""Run settings out of their range are refused by name."""

from __future__ import annotations

import math

import pytest

from data.errors import SettingError
from planner.sim.settings import SimSettings


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scrape_period_s", 0.0),
        ("scrape_period_s", 1e-320),
        ("scrape_period_s", math.inf),
        ("scrape_delay_s", -1.0),
        ("scrape_delay_s", math.inf),
        ("kv_event_lag_s", math.nan),
        ("step_noise", 0.6),
        ("cancel_share", 1.5),
        ("retries", -1),
    ],
)
def test_a_value_out_of_range_is_named(field: str, value: float) -> None:
    with pytest.raises(SettingError, match=field):
        SimSettings(**{field: value})
