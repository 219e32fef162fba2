"""When steps are due."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.errors import SettingError
from planner.loop.schedule import Schedule, parse_duration


@given(st.floats(1, 86_400), st.floats(0, 4e9))
def test_the_next_step_is_later_and_not_further_than_one_interval(every_s: float, now_s: float) -> None:
    at_s = Schedule(every_s).next_s(now_s)
    assert now_s < at_s <= now_s + 2 * every_s


def test_a_restart_keeps_the_rhythm() -> None:
    schedule = Schedule(900.0)
    assert schedule.next_s(1000.0) == schedule.next_s(1799.0) == 1800.0
    assert schedule.next_s(1800.0) == 2700.0


def test_missed_steps_are_made_up_by_one() -> None:
    assert Schedule(60.0).next_s(1_000_000.0) == 1_000_020.0


def test_cron_is_in_utc_and_strictly_later() -> None:
    schedule = Schedule(cron="15 6 * * mon")
    monday = datetime(2026, 3, 2, 6, 15, tzinfo=UTC).timestamp()
    assert schedule.next_s(monday - 1) == monday
    assert schedule.next_s(monday) == monday + 7 * 86_400


@pytest.mark.parametrize(
    "bad", ["", "* * *", "61 * * * *", "a b c d e", "0 0 31 2 *", "0 0 1 * mon", "0 0 * * 8", "0 0 * * 5-1"]
)
def test_cron_expressions_are_checked(bad: str) -> None:
    with pytest.raises(SettingError, match="cron"):
        Schedule(cron=bad)


@pytest.mark.parametrize(
    ("weekdays", "expected"),
    [
        ("0", "Sunday"),
        ("7", "Sunday"),
        ("1", "Monday"),
        ("sun", "Sunday"),
        ("1-5", "Monday Tuesday Wednesday Thursday Friday"),
        ("5-7", "Friday Saturday Sunday"),
        ("*/2", "Sunday Tuesday Thursday Saturday"),
        ("4/2,mon", "Monday Thursday Saturday"),
    ],
)
def test_weekdays_are_counted_as_every_cron_counts_them(weekdays: str, expected: str) -> None:
    """The library below counts from Monday: `1` would mean Tuesday."""
    schedule, at_s, seen = Schedule(cron=f"0 6 * * {weekdays}"), 1_800_000_000.0, set()
    for _ in range(7):
        at_s = schedule.next_s(at_s)
        seen.add(datetime.fromtimestamp(at_s, UTC).strftime("%A"))
    assert seen == set(expected.split())


def test_exactly_one_kind_of_schedule() -> None:
    for every_s, cron in ((None, None), (60.0, "* * * * *")):
        with pytest.raises(SettingError, match="schedule"):
            Schedule(every_s, cron)
    with pytest.raises(SettingError, match="every"):
        Schedule(0.5)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("1.5h", 5400), ("2d", 172800)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text, "--every") == seconds


@pytest.mark.parametrize("bad", ["", "m", "-5m", "5 minutes", "1e3"])
def test_durations_are_checked(bad: str) -> None:
    with pytest.raises(SettingError, match="duration"):
        parse_duration(bad, "--every")
