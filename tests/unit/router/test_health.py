"""Breakers: what opens them, what never does, and how an endpoint comes back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from data.errors import SettingError
from router.endpoints import EndpointTable
from router.feeds.breaker import Ending, HealthSettings, Phase, ending_of_status
from router.feeds.health import HealthBook

CLIENT_FAULTS = (400, 400, 413, 422, 404)


class Driver:
    """Sends numbered requests to a health book."""

    def __init__(self, table: EndpointTable, settings: HealthSettings | None = None) -> None:
        self.table, self.health, self.lease = table, HealthBook(table, settings), 0

    def send(self, row: int, now_s: float, p99_s: float = 1.0) -> int:
        self.lease += 1
        self.health.dispatched(self.lease, row, now_s, p99_s)
        return self.lease

    def whole(self, row: int, now_s: float, ending: Ending) -> None:
        lease = self.send(row, now_s)
        if ending is Ending.COMPLETED:
            self.health.first_token(lease, now_s + 0.1)
        self.health.finished(lease, ending, now_s + 0.2)

    def healthy(self, row: int, now_s: float) -> bool:
        self.health.refresh(now_s)
        return bool(self.table.healthy[row])


@pytest.fixture
def driver(make_table: Callable[..., EndpointTable]) -> Driver:
    return Driver(make_table(4))


def test_what_clients_did_wrong_never_opens_a_breaker(driver: Driver) -> None:
    """F006: the example of the case."""
    for number, status in enumerate(CLIENT_FAULTS):
        driver.whole(0, float(number), ending_of_status(status))
    assert driver.healthy(0, 6.0)
    assert driver.health.report()[0].endings == {"client_error": 5}
    for number in range(3):
        assert driver.healthy(0, 10.0 + number)
        driver.whole(0, 10.0 + number, ending_of_status(502))
    assert not driver.healthy(0, 12.5)
    assert driver.healthy(1, 12.5)
    assert driver.health.phase(0) is Phase.OPEN


def test_429_is_load_and_not_illness(driver: Driver) -> None:
    """F006: any number of them."""
    for number in range(50):
        driver.whole(0, 0.1 * number, ending_of_status(429))
    assert driver.healthy(0, 6.0)


@pytest.mark.parametrize("ending", [Ending.SERVER_ERROR, Ending.CONNECT_ERROR])
def test_failures_count_in_a_row(driver: Driver, ending: Ending) -> None:
    for number in range(20):
        driver.whole(0, float(number), ending if number % 3 else Ending.COMPLETED)
    assert driver.healthy(0, 21.0)


def test_an_engine_that_dies_after_every_first_token_is_found(driver: Driver) -> None:
    """F067: the end of a stream decides, not its beginning."""
    for number in range(3):
        lease = driver.send(0, float(number))
        driver.health.first_token(lease, number + 0.1)
        driver.health.finished(lease, Ending.SERVER_ERROR, number + 0.2)
    assert not driver.healthy(0, 2.3)


def test_the_pause_takes_effect_at_once_is_absolute_and_doubles(driver: Driver) -> None:
    """F064: at most one request for each pause reaches a failing endpoint."""
    reached = []
    now_s = 0.0
    while now_s < 60.0:
        if driver.healthy(0, now_s):
            reached.append(now_s)
            driver.whole(0, now_s, Ending.SERVER_ERROR)
        now_s += 0.5
    assert reached[:3] == [0.0, 0.5, 1.0]
    assert [round(b - a) for a, b in pairwise(reached[2:])] == [6, 10, 20]


def test_traffic_ramps_up_after_a_good_probe(driver: Driver) -> None:
    """F064: the end of a pause is a door ajar, not a gate thrown open."""
    for _ in range(3):
        driver.whole(0, 0.0, Ending.SERVER_ERROR)
    open_at_once = []
    now_s, running = 6.0, []
    for _ in range(6):
        while driver.healthy(0, now_s) and len(running) < 40:
            running.append(driver.send(0, now_s))
        open_at_once.append(len(running))
        now_s += 0.2
        for lease in running:
            driver.health.first_token(lease, now_s)
            driver.health.finished(lease, Ending.COMPLETED, now_s)
        running = []
    assert open_at_once == [1, 2, 4, 8, 40, 40]
    assert driver.health.phase(0) is Phase.CLOSED


def test_a_request_overdue_on_a_silent_endpoint_stops_new_traffic(driver: Driver) -> None:
    first = driver.send(0, 0.0, p99_s=0.2)
    assert driver.healthy(0, 0.59)
    assert not driver.healthy(0, 0.61)
    assert driver.health.phase(0) is Phase.SUSPECT
    driver.health.first_token(first, 0.8)
    assert driver.healthy(0, 0.8), "it was only slow"
    assert driver.health.phase(0) is Phase.RAMP


def test_an_endpoint_is_a_second_choice_before_it_is_suspect(driver: Driver) -> None:
    """After one predicted P99 without a sign others are preferred; a sign ends it, and nobody is ever left out."""
    rows = np.arange(4)
    lease = driver.send(0, 0.0, p99_s=0.2)
    driver.health.refresh(0.19)
    assert driver.health.prefer_heard(rows).tolist() == [0, 1, 2, 3]
    driver.health.refresh(0.21)
    assert driver.health.prefer_heard(rows).tolist() == [1, 2, 3]
    assert driver.health.prefer_heard(rows[:1]).tolist() == [0], "better than no endpoint"
    assert driver.healthy(0, 0.21)
    driver.health.first_token(lease, 0.3)
    assert driver.health.prefer_heard(rows).tolist() == [0, 1, 2, 3]
    again = driver.send(0, 1.0, p99_s=0.2)
    driver.health.refresh(1.3)
    driver.health.finished(again, Ending.COMPLETED, 1.4)
    assert driver.health.prefer_heard(rows).tolist() == [0, 1, 2, 3]


def test_a_sign_from_another_request_keeps_an_endpoint_first_choice(driver: Driver) -> None:
    driver.send(0, 0.0, p99_s=0.2)
    driver.whole(0, 0.05, Ending.COMPLETED)
    driver.health.refresh(0.3)
    assert driver.health.prefer_heard(np.arange(4)).tolist() == [0, 1, 2, 3]
    driver.send(1, 1.0, p99_s=0.2)
    driver.health.refresh(1.3)
    driver.health.reset(1)
    assert driver.health.prefer_heard(np.arange(4)).tolist() == [0, 1, 2, 3]


def test_a_doubt_ends_with_the_request_that_raised_it(driver: Driver) -> None:
    """Else nothing would ever be sent there again, and nothing could come from there."""
    lease = driver.send(0, 0.0, p99_s=0.2)
    driver.health.refresh(0.3)
    driver.health.finished(lease, Ending.CANCELLED, 0.31)
    assert driver.healthy(0, 0.4)
    assert driver.health.prefer_heard(np.arange(4)).tolist() == [0, 1, 2, 3]
    driver.send(1, 1.0, p99_s=0.2)
    given_up = driver.send(1, 1.0, p99_s=0.2)
    driver.health.refresh(2.0)
    driver.health.finished(given_up, Ending.TIMEOUT, 3.0)
    assert driver.health.phase(1) is Phase.OPEN
    assert driver.healthy(1, 13.1)
    assert driver.health.prefer_heard(np.arange(4)).tolist() == [0, 1, 2, 3], "a probe may go there"


def test_a_slow_endpoint_that_answers_others_is_not_silent(driver: Driver) -> None:
    slow = driver.send(0, 0.0, p99_s=0.2)
    for number in range(1, 20):
        driver.whole(0, 0.2 * number, Ending.COMPLETED)
        assert driver.healthy(0, 0.2 * number + 0.15)
    driver.health.finished(slow, Ending.COMPLETED, 4.0)
    assert driver.health.phase(0) is Phase.CLOSED


def test_a_time_out_on_a_silent_endpoint_opens_it_at_once(driver: Driver) -> None:
    lease = driver.send(0, 0.0, p99_s=0.2)
    driver.health.finished(lease, Ending.TIMEOUT, 2.0)
    assert not driver.healthy(0, 2.0)
    assert driver.health.report()[0].reason == "silence"


def test_the_pause_for_silence_grows_with_what_it_cost(driver: Driver) -> None:
    """A probe of a hung worker may cost its caller as long as the last request waited: no more than a sixth of the
    time is lost that way."""
    lease = driver.send(0, 0.0, p99_s=0.2)
    driver.health.finished(lease, Ending.TIMEOUT, 2.0)
    assert not driver.healthy(0, 11.9)
    assert driver.healthy(0, 12.1)
    probe = driver.send(0, 12.1, p99_s=0.2)
    driver.health.finished(probe, Ending.TIMEOUT, 14.1)
    assert not driver.healthy(0, 34.0)
    assert driver.healthy(0, 34.2)
    driver.health.finished(driver.send(1, 40.0, p99_s=0.2), Ending.TIMEOUT, 100.0)
    assert not driver.healthy(1, 159.0)
    assert driver.healthy(1, 160.1), "never longer than the longest pause"


def test_clients_less_patient_than_the_prediction_are_evidence_together(driver: Driver) -> None:
    """Each gives up before it is overdue; together their silence is as long as one would have to be."""
    for number in range(4):
        lease = driver.send(0, float(number), p99_s=1.0)
        driver.health.finished(lease, Ending.CANCELLED, number + 0.9)
    assert not driver.healthy(0, 4.0)


def test_impatient_cancels_of_a_busy_user_are_no_evidence(driver: Driver) -> None:
    for number in range(30):
        lease = driver.send(0, 0.02 * number, p99_s=1.0)
        driver.health.finished(lease, Ending.CANCELLED, 0.02 * number + 0.01)
    assert driver.healthy(0, 0.7)


def test_a_pool_that_is_slow_as_a_whole_is_left_alone(driver: Driver) -> None:
    """Half of a pool may be taken out for silence, never more."""
    for row in range(4):
        driver.send(row, 0.0, p99_s=0.2)
    assert sum(driver.healthy(row, 5.0) for row in range(4)) == 2
    lonely = Driver(driver.table, HealthSettings(most_suspected=0.0))
    lonely.send(0, 0.0, p99_s=0.2)
    assert lonely.healthy(0, 60.0)


def test_refusals_of_a_suspect_lead_to_a_probe(driver: Driver) -> None:
    """It answers, be it an error: then it does not hang."""
    lease = driver.send(0, 0.0, p99_s=0.2)
    assert not driver.healthy(0, 1.0)
    driver.health.finished(lease, Ending.CLIENT_ERROR, 1.1)
    assert driver.healthy(0, 1.1)
    driver.send(0, 1.1)
    assert not driver.healthy(0, 1.1), "one at a time"


def test_patience_grows_where_predictions_are_too_short(driver: Driver) -> None:
    before = driver.health.dispatched(1000, 1, 0.0, 1.0)
    for number in range(200):
        lease = driver.send(0, float(number), p99_s=0.1)
        driver.health.first_token(lease, number + 0.5)
        driver.health.finished(lease, Ending.COMPLETED, number + 0.6)
    after = driver.health.dispatched(1001, 1, 200.0, 1.0)
    assert before == 3.0
    assert after == pytest.approx(15.0, rel=0.1)


def test_moves_are_bounded_and_only_off_silent_endpoints(make_table: Callable[..., EndpointTable]) -> None:
    driver = Driver(make_table(4), HealthSettings(rescue_share=0.0, rescue_burst=3.0))
    leases = [driver.send(0, 0.0, p99_s=0.1) for _ in range(6)]
    fine = driver.send(1, 0.0, p99_s=10.0)
    assert not any(driver.health.rescue(lease) for lease in leases)
    driver.health.refresh(0.5)
    assert driver.health.silent_leases() == leases
    assert [driver.health.rescue(lease) for lease in leases] == [True, True, True, False, False, False]
    assert not driver.health.rescue(fine)
    assert not driver.health.rescue(999)


def test_an_end_that_nobody_told_says_nothing(driver: Driver) -> None:
    for number in range(10):
        driver.whole(0, 10.0 * number, Ending.UNTOLD)
    assert driver.healthy(0, 95.0)


def test_a_new_incarnation_starts_trusted_and_late_ends_are_ignored(driver: Driver) -> None:
    """F025: cooldown and counts go with the incarnation."""
    late = driver.send(0, 0.0)
    for _ in range(3):
        driver.whole(0, 0.0, Ending.CONNECT_ERROR)
    assert not driver.healthy(0, 1.0)
    driver.health.reset(0)
    assert driver.healthy(0, 1.0)
    for _ in range(3):
        driver.health.finished(late, Ending.CONNECT_ERROR, 1.0)
    assert driver.healthy(0, 1.0)
    assert driver.health.sent[0] == 0


def test_outcomes_are_kept_by_attempt(driver: Driver) -> None:
    """F063: each endpoint that failed a request is told, not only the first."""
    driver.whole(0, 0.0, ending_of_status(503))
    driver.whole(1, 0.3, Ending.TIMEOUT)
    driver.whole(2, 0.6, Ending.COMPLETED)
    assert [report.endings for report in driver.health.report()] == [
        {"server_error": 1},
        {"timeout": 1},
        {"completed": 1},
        {},
    ]


def test_the_book_grows_with_its_table(driver: Driver) -> None:
    driver.table.grow(6)
    driver.health.resized()
    driver.whole(5, 0.0, Ending.COMPLETED)
    assert driver.health.sent == [0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("status", "ending"),
    [(200, Ending.COMPLETED), (404, Ending.CLIENT_ERROR), (429, Ending.THROTTLED), (503, Ending.SERVER_ERROR)],
)
def test_statuses(status: int, ending: Ending) -> None:
    assert ending_of_status(status) is ending


@pytest.mark.parametrize(
    "wrong",
    [
        {"failures_to_open": 0},
        {"silent_to_open": 0},
        {"pause_s": 0.0},
        {"longest_pause_s": 1.0},
        {"patience_factor": 0.5},
        {"least_patience_s": 0.0},
        {"unpredicted_p99_s": float("inf")},
        {"most_suspected": 1.5},
        {"rescue_share": -0.1},
        {"rescue_burst": -1.0},
        {"silent_pause_factor": -1.0},
        {"doubt_factor": 4.0},
        {"trusted_after": 0},
    ],
)
def test_settings_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingError, match=next(iter(wrong))):
        HealthSettings(**wrong)  # type: ignore[arg-type]


def test_what_is_remembered_is_bounded_by_what_is_in_flight(driver: Driver) -> None:
    """However long the patience, requests that ended leave nothing behind."""
    for number in range(5000):
        lease = driver.send(number % 4, 0.001 * number, p99_s=1000.0 if number % 2 else float("inf"))
        driver.health.finished(lease, Ending.COMPLETED, 0.001 * number)
    assert len(driver.health._due) <= 70
    assert driver.health._waiting == {}


def test_without_predictions_the_times_of_late_are_expected(driver: Driver) -> None:
    assert driver.health.dispatched(1000, 1, 0.0) == 15.0
    for number in range(64):
        lease = driver.send(0, float(number), p99_s=float("nan"))
        driver.health.first_token(lease, number + 0.2)
        driver.health.finished(lease, Ending.COMPLETED, number + 0.3)
    assert driver.health.dispatched(1001, 1, 100.0) == pytest.approx(0.6)
