"""The planner reads what routers have learned, and goes on without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from data.types import Outcome, Slo, Status
from planner.loop.feedback_files import MOST_AGE_S, read_corrections
from router.slomax.corrections import NEUTRAL
from router.slomax.feedback import Expected, Feedback
from router.slomax.feedback_settings import FeedbackSettings
from router.slomax.feedback_state import SavedFeedback, save_feedback

KEY = ("chat@v1", "interactive")
OWED = ("interactive", "acme")
NOW_S = 1_000_000.0


def _router(path: Path, delivered: float, requests: int = 40, at_s: float = NOW_S, gain: float = 1.0) -> Feedback:
    """A router that delivers this share of what a plan promises and a tenant is owed, for two minutes."""
    settings = FeedbackSettings(debt_gain=gain)
    feedback = Feedback(settings, expected=Expected({KEY: requests * 10.0}, {OWED: 100.0}))
    for step in range(1, 25):
        for number in range(requests):
            feedback.offered(*KEY, "acme", 0, 50.0)
            ttft_s = 0.5 if number < delivered * requests else 9.0
            done = Outcome(number, 0, Status.COMPLETED, KEY[1], "acme", 0, 0.0, 6.0, ttft_s, 10.0, 100, 0, 50)
            feedback.ended(KEY[0], done, Slo(ttft_s=1.0))
        feedback.step(5.0 * step)
    save_feedback(path, SavedFeedback(at_s, feedback.state(), settings))
    return feedback


def test_one_router_is_read_as_it_is(tmp_path: Path) -> None:
    """Its debts count by its own settings; how much it lets in is its own affair."""
    feedback = _router(tmp_path / "a.json", 0.05, gain=3.0)
    read = read_corrections([tmp_path / "a.json"], NOW_S)
    assert read.notes == ()
    assert read.corrections.capacity == {KEY: pytest.approx(feedback.corrections.capacity[KEY])}
    assert read.corrections.debt == feedback.corrections.debt
    assert read.corrections.debt[OWED] > 2.0
    assert feedback.corrections.admission
    assert not read.corrections.admission


def test_several_routers_count_by_what_arrives_at_them(tmp_path: Path) -> None:
    low, high = _router(tmp_path / "a.json", 0.5, 90), _router(tmp_path / "b.json", 1.0, 30)
    slow, fast = (one.corrections.capacity.get(KEY, 1.0) for one in (low, high))
    assert slow < fast
    read = read_corrections([tmp_path / "a.json", tmp_path / "b.json"], NOW_S)
    assert read.corrections.capacity[KEY] == pytest.approx((3 * slow + fast) / 4)
    debts = [one.corrections.debt.get(OWED, 1.0) for one in (low, high)]
    assert read.corrections.debt.get(OWED, 1.0) == pytest.approx(sum(debts) / 2)


def test_a_silent_router_fades_and_then_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    fresh = _router(path, 0.5).corrections.capacity[KEY]
    later = read_corrections([path], NOW_S + 1800.0).corrections.capacity[KEY]
    assert fresh < later < 1.0
    gone = read_corrections([path], NOW_S + MOST_AGE_S + 1.0)
    assert gone.corrections == NEUTRAL
    assert "3601 s old" in gone.notes[0]
    _router(tmp_path / "b.json", 0.5, at_s=NOW_S + 2 * MOST_AGE_S)
    both = read_corrections([path, tmp_path / "b.json"], NOW_S + 2 * MOST_AGE_S)
    assert both.corrections.capacity[KEY] == pytest.approx(fresh)  # not watered down by the one that is gone


def test_without_any_file_of_use_nothing_is_corrected_and_it_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    read = read_corrections([tmp_path / "none.json", broken], NOW_S)
    assert read.corrections == NEUTRAL
    assert len(read.notes) == 2
    assert "none.json" in read.notes[0]
    assert "broken.json" in read.notes[1]
    assert read_corrections([], NOW_S).notes == ()
