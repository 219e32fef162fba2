"""Zeros that are gaps, and zeros that are demand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.errors import SettingError
from data.traces.report import ReadReport
from data.traces.servegen_rates import read_demand
from data.traces.source import TextSource
from models.demand.outages import OutageSettings, find_outages


def busy(windows: int = 40) -> np.ndarray:
    return np.full((5, windows), 2.0)


def test_a_tier_that_drops_to_zero_at_once_is_a_gap_with_its_partial_neighbours() -> None:
    rates = busy()
    rates[:, 10:14] = 0.0
    rates[:, 9] = rates[:, 14] = 0.01
    assert np.flatnonzero(find_outages(rates, 600.0)).tolist() == [9, 10, 11, 12, 13, 14]


def test_true_zero_demand_stays_zero() -> None:
    """F098: one idle series, and a tier that fades out, are no traffic and not missing data."""
    one_idle = busy()
    one_idle[0, 10:] = 0.0
    assert not find_outages(one_idle, 600.0).any()
    fading = busy() * np.array([1.0, 0.8, 0.6, 0.4, 0.2, 0.1, 0.05, 0.02, *[0.0] * 32]) / 100.0
    assert not find_outages(fading, 600.0).any()
    alone = np.array([[100.0, 80, 60, 40, 20, 10, 0, 0]])
    assert not find_outages(alone, 60.0).any()


def test_absent_series_are_unknown_and_never_zero() -> None:
    """F115: an empty answer is unknown, also for a single series."""
    rates = np.array([[4.0, np.nan, np.nan, 4.0, 0.0]])
    assert find_outages(rates, 60.0).tolist() == [False, True, True, False, False]


def test_a_standing_zero_is_believed_in_the_end() -> None:
    rates = busy()
    rates[:, 10:] = 0.0
    found = find_outages(rates, 600.0, OutageSettings(longest_s=3000.0))
    assert np.flatnonzero(found).tolist() == [10, 11, 12, 13, 14]


@given(st.lists(st.sampled_from([0.0, 0.01, 1.0, 5.0]), min_size=2, max_size=30), st.integers(1, 29))
def test_whether_a_window_is_a_gap_depends_on_the_past_alone(levels: list[float], cut: int) -> None:
    rates = np.tile(np.array(levels), (4, 1))
    cut = min(cut, rates.shape[1])
    whole = find_outages(rates, 600.0)
    assert (find_outages(rates[:, :cut], 600.0) == whole[:cut]).all()


def test_settings_are_checked() -> None:
    with pytest.raises(SettingError, match="least_active"):
        OutageSettings(least_active=1)


@pytest.mark.shared_data
def test_outages_of_a_public_tier(shared_data: Path) -> None:
    """F098: every window of m-mid with the whole tier at zero is a gap (84 in 14 days, 62 in the 11 kept here)."""
    path = shared_data / "servegen" / "m-mid.rates.day0-10.csv.gz"
    demand = read_demand(TextSource(path), ReadReport("rates", "servegen"))
    starts, total, zero = demand.totals()
    rates = np.zeros((len(demand.clients), len(starts)))
    rates[demand.client, np.searchsorted(starts, demand.start_s)] = demand.rate_per_s
    found = find_outages(rates, demand.window_s)
    assert zero.sum() == 62
    assert found[zero].all()
    partial = found & ~zero
    assert partial.sum() == 16
    assert total[partial].max() < 25.0 < total[~found].min() / 10.0


@pytest.mark.shared_data
def test_no_outage_is_invented(shared_data: Path) -> None:
    path = shared_data / "servegen" / "m-large.rates.day0-10.csv.gz"
    demand = read_demand(TextSource(path), ReadReport("rates", "servegen"))
    starts = np.unique(demand.start_s)
    rates = np.zeros((len(demand.clients), len(starts)))
    rates[demand.client, np.searchsorted(starts, demand.start_s)] = demand.rate_per_s
    assert not find_outages(rates, demand.window_s).any()
