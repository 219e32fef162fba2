"""The feedback as a whole: evidence, verdicts, step responses of a simple plant, restart."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from data.errors import DocumentError, SettingError
from data.types import Outcome, Slo, Status
from router.slomax.corrections import NEUTRAL, Corrections
from router.slomax.feedback import Expected, Feedback
from router.slomax.feedback_settings import FeedbackSettings
from router.slomax.feedback_state import SavedFeedback, load_feedback, save_feedback

SLO = Slo(ttft_s=1.0, tpot_s=0.05)
KEY = ("m@1", "chat")
TOKENS = 100


def _outcome(
    status: Status = Status.COMPLETED,
    ttft_s: float = 0.5,
    arrival_s: float = 0.0,
    e2e_s: float | None = None,
    tenant: str = "shop",
    tokens: int = TOKENS,
    attempt: int = 0,
) -> Outcome:
    total = ttft_s + 0.01 * tokens if e2e_s is None else e2e_s
    return Outcome(
        0, attempt, status, "chat", tenant, 0, arrival_s, arrival_s + total, ttft_s, total, 10, 0, tokens
    )


def _feed(feedback: Feedback, good: int, bad: int, arrival_s: float = 0.0, tenant: str = "shop") -> None:
    for number in range(good + bad):
        feedback.offered(*KEY, tenant, 0, TOKENS)
        feedback.ended(
            KEY[0], _outcome(ttft_s=0.5 if number < good else 9.0, arrival_s=arrival_s, tenant=tenant), SLO
        )


class Plant:
    """A pool that meets the targets of what it is sent up to ``capacity`` tokens/s, and of fewer above.

    Above it the share that meets them falls steeply, as in a queue; a draw decides for each request.
    """

    def __init__(self, capacity: float, settings: FeedbackSettings | None = None, seed: int = 0) -> None:
        self.capacity = capacity
        self.now_s = 0.0
        self.rng = np.random.default_rng(seed)
        self.feedback = Feedback(settings, 0.0, Expected({KEY: 1000.0}, {("chat", "shop"): 300.0}))
        self.shares: list[float] = []
        self.good: list[float] = []

    def run(self, seconds: float, offered: float, repeats: float = 0.0) -> None:
        """A constant load of ``offered`` tokens/s, and ``repeats`` further attempts for each first one."""
        end_s = self.now_s + seconds
        while self.now_s < end_s - 1e-9:
            self.now_s += 1.0
            found = self.feedback.step(self.now_s)
            share = found.admission.get(KEY, 1.0)
            again = repeats * found.repeats.get(KEY, 1.0)
            sent = share * offered * (1.0 + again)
            meets = 0.97 if sent <= self.capacity else max(0.97 - 6.0 * (sent / self.capacity - 1.0), 0.02)
            good = 0
            for _ in range(self.rng.poisson(offered / TOKENS)):
                self.feedback.offered(*KEY, "shop", 0, TOKENS)
                for _ in range(round(repeats)):
                    self.feedback.offered(*KEY, "shop", 1, TOKENS)
                if self.rng.random() < share:
                    met = bool(self.rng.random() < meets)
                    good += met
                    outcome = _outcome(ttft_s=0.5 if met else 5.0, arrival_s=self.now_s)
                    self.feedback.ended(KEY[0], outcome, SLO)
            self.shares.append(share)
            self.good.append(float(good * TOKENS))


def _settled_after(shares: list[float], band: float) -> int:
    """Steps after which the share stays within ``band`` of its last mean."""
    last = float(np.mean(shares[-60:]))
    outside = [number for number, share in enumerate(shares) if abs(share - last) > band]
    return outside[-1] + 1 if outside else 0


def test_a_quiet_pool_is_never_corrected() -> None:
    plant = Plant(capacity=2000.0)
    plant.run(600, 800.0)
    assert plant.feedback.corrections.admission == {}
    assert plant.feedback.corrections.debt == {}


@pytest.mark.parametrize("seed", range(4))
def test_a_load_that_doubles_is_cut_to_what_the_pool_carries(seed: int) -> None:
    """F058: Goodput under twice the load stays near its value at capacity, without going back and forth."""
    plant = Plant(capacity=1000.0, seed=seed)
    plant.run(300, 900.0)
    plant.run(900, 1800.0)
    after = plant.shares[300:]
    assert np.mean(after[-300:]) == pytest.approx(1000.0 / 1800.0, abs=0.06)
    assert min(after) > 0.35
    assert _settled_after(after, 0.08) <= 240
    assert np.mean(plant.good[-300:]) >= 0.8 * 1000.0
    changes = sum(a != b for a, b in pairwise(after[-300:]))
    assert changes <= 12
    plant.run(400, 700.0)
    assert plant.shares[-1] == 1.0


def test_slow_replicas_lower_the_capacity_of_the_next_split() -> None:
    """A third of the replicas at half speed: the factor follows to 5/6 and comes back when they recover."""
    plant = Plant(capacity=1000.0)
    plant.run(600, 1200.0)
    whole = plant.feedback.corrections.capacity.get(KEY, 1.0)
    plant.capacity = 833.0
    plant.run(900, 1200.0)
    slow = plant.feedback.corrections.capacity[KEY]
    assert slow == pytest.approx(whole * 5.0 / 6.0, abs=0.06)
    plant.capacity = 1000.0
    plant.run(1500, 1200.0)
    assert plant.feedback.corrections.capacity.get(KEY, 1.0) > slow + 0.05


def test_a_storm_of_repeats_is_limited_and_forgotten() -> None:
    """F058, F063: attempts after the first are limited to their budget while targets are missed."""
    plant = Plant(capacity=1000.0)
    plant.run(120, 900.0)
    plant.run(300, 900.0, repeats=3.0)
    found = plant.feedback.corrections
    assert found.repeats[KEY] == pytest.approx(0.2 / 3.0, abs=0.02)
    plant.run(120, 900.0)
    assert KEY not in plant.feedback.corrections.repeats
    assert np.mean(plant.good[-30:]) >= 0.8 * 900.0


def test_without_enough_evidence_nothing_changes() -> None:
    feedback = Feedback()
    _feed(feedback, 0, 19)
    assert feedback.step(10.0) == NEUTRAL
    _feed(feedback, 0, 1)
    assert feedback.step(20.0).admission[KEY] == pytest.approx(0.7)


def test_between_two_steps_the_same_value_comes_back() -> None:
    feedback = Feedback()
    _feed(feedback, 0, 50)
    first = feedback.step(5.0)
    _feed(feedback, 0, 50)
    assert feedback.step(9.9) is first
    assert feedback.due_s == 10.0


def test_only_what_arrived_after_a_change_is_judged_again() -> None:
    """Requests from before the cut end late for long: they must not cut again."""
    feedback = Feedback()
    _feed(feedback, 0, 50)
    cut = feedback.step(10.0).admission[KEY]
    _feed(feedback, 0, 500, arrival_s=9.0)
    assert feedback.step(60.0).admission[KEY] == cut
    _feed(feedback, 0, 50, arrival_s=61.0)
    assert feedback.step(120.0).admission[KEY] < cut


@pytest.mark.parametrize(
    ("status", "ttft_s", "e2e_s", "counts"),
    [
        (Status.FAILED, math.nan, 0.1, True),
        (Status.CANCELLED, math.nan, 5.0, True),
        (Status.CANCELLED, math.nan, 0.2, False),
        (Status.CANCELLED, 0.3, 5.0, False),
        (Status.CANCELLED, 2.0, 5.0, True),
        (Status.REJECTED, math.nan, 0.0, False),
        (Status.CLIENT_ERROR, math.nan, 0.0, False),
    ],
)
def test_a_storm_of_cancels_in_time_is_not_the_fault_of_the_pool(
    status: Status, ttft_s: float, e2e_s: float, counts: bool
) -> None:
    """F061, F067: clients that leave within their target, and refusals, tell nothing about the engines."""
    feedback = Feedback()
    for _ in range(100):
        feedback.ended(KEY[0], _outcome(status, ttft_s, e2e_s=e2e_s), SLO)
    assert (KEY in feedback.step(10.0).admission) == counts


def test_debt_grows_with_what_was_due_and_not_delivered() -> None:
    """A tenant that asks for less than its guarantee is owed only that."""
    expected = Expected({}, {("chat", "shop"): 100.0, ("chat", "lab"): 100.0})
    feedback = Feedback(now_s=0.0, expected=expected)
    for _ in range(10):
        feedback.offered(*KEY, "shop", 0, TOKENS)
        feedback.offered(*KEY, "lab", 0, TOKENS)
        feedback.ended(KEY[0], _outcome(tenant="lab"), SLO)
        feedback.ended(KEY[0], _outcome(tenant="shop", ttft_s=9.0), SLO)
    found = feedback.step(10.0)
    assert found.debt == {("chat", "shop"): pytest.approx(1.0 + 10.0 / 30.0)}
    for step in range(2, 60):
        feedback.step(10.0 * step)
    assert feedback.step(610.0).debt[("chat", "shop")] < 1.1


def test_a_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    """Bumpless: the corrections before and after are the same, bit for bit."""
    plant = Plant(capacity=700.0)
    plant.run(400, 1500.0, repeats=1.0)
    before = plant.feedback.corrections
    path = tmp_path / "feedback.json"
    save_feedback(path, SavedFeedback(1000.0, plant.feedback.state()))
    saved = load_feedback(path)
    assert saved is not None
    again = Feedback(now_s=5.0)
    after = again.restore(saved.state, 0.0, 5.0)
    assert after == before
    assert again.state() == plant.feedback.state()
    assert again.step(20.0) == before
    assert not list(tmp_path.glob("*.tmp*"))


def test_an_old_state_has_faded() -> None:
    plant = Plant(capacity=500.0)
    plant.run(400, 1500.0)
    share = plant.feedback.corrections.admission[KEY]
    half, gone = (Feedback().restore(plant.feedback.state(), age, 0.0) for age in (900.0, 1e6))
    assert share < half.admission[KEY] < 1.0
    assert gone == Corrections(admission=gone.admission, capacity=gone.capacity)
    assert gone.admission.get(KEY, 1.0) == pytest.approx(1.0)
    assert gone.capacity.get(KEY, 1.0) == pytest.approx(1.0)


def test_no_file_is_a_cold_start_and_a_wrong_one_is_told(tmp_path: Path) -> None:
    assert load_feedback(tmp_path / "none.json") is None
    path = tmp_path / "feedback.json"
    save_feedback(path, SavedFeedback(1.0, Plant(capacity=1.0).feedback.state()))
    plain = json.loads(path.read_text())
    path.write_text(json.dumps({**plain, "colour": 1}))
    with pytest.raises(DocumentError, match="unknown key"):
        load_feedback(path)
    path.write_text("{")
    with pytest.raises(DocumentError, match="cannot be read"):
        load_feedback(path)


def test_a_state_of_other_settings_is_brought_into_range() -> None:
    plant = Plant(capacity=100.0, settings=FeedbackSettings(admission_floor=0.05))
    plant.run(600, 2000.0)
    state = plant.feedback.state()
    tight = Feedback(FeedbackSettings(admission_floor=0.5)).restore(state, 0.0, 0.0)
    assert tight.admission[KEY] == 0.5


@pytest.mark.parametrize(
    "change",
    [{"attain_low": 0.95}, {"least_raise": 0.4}, {"step_s": 0.0}, {"capacity_low": 1.5}, {"most_backoff": 0}],
)
def test_settings_out_of_range_are_named(change: dict[str, float]) -> None:
    with pytest.raises(SettingError, match=next(iter(change))):
        replace(FeedbackSettings(), **change)  # type: ignore[arg-type]
