"""The books of Goodput: one end a request, one cause a wasted token."""

from __future__ import annotations

from typing import Any

import pytest

from data.types import Outcome, Slo, Status
from router.goodput import GoodputBook, Waste, computed_tokens

SLO = Slo(ttft_s=1.0, tpot_s=0.1)
KEY = ("chat", "acme", "standard")


def outcome(status: Status = Status.COMPLETED, attempt: int = 0, **changes: Any) -> Outcome:
    values: dict[str, Any] = {
        "endpoint": 0,
        "ttft_s": 0.5,
        "e2e_s": 1.5,
        "cached_tokens": 400,
        "output_tokens": 11,
    }
    values |= changes
    return Outcome(
        7, attempt, status, "chat", "acme", values["endpoint"], 0.0, 2.0, values["ttft_s"], values["e2e_s"], 1000,
        values["cached_tokens"], values["output_tokens"],
    )  # fmt: skip


def test_f063_attempts_are_counted_one_by_one_and_the_request_once() -> None:
    """F063: 503, then a time-out, then success: two repeats, one completion, one request."""
    book = GoodputBook()
    book.offered(KEY)
    book.ended(KEY, outcome(Status.FAILED, 0, output_tokens=0), SLO, again=True)
    book.ended(KEY, outcome(Status.FAILED, 1, output_tokens=3), SLO, again=True)
    book.ended(KEY, outcome(Status.COMPLETED, 2), SLO, again=False)
    for tally in (book.total, book.by_class["chat"], book.by_tenant["acme"], book.by_tier["standard"]):
        assert (tally.offered, tally.completed, tally.met, tally.failed, tally.repeats) == (1, 1, 1, 0, 2)
        assert (tally.running, tally.good_tokens) == (0, 11)
        assert tally.waste.by_cause() == {"late": 0, "cancelled": 0, "failed": 0, "repeated": 603, "preempted": 0}


@pytest.mark.parametrize(
    ("ended", "again", "cause", "tokens"),
    [
        (outcome(), False, None, 0),
        (outcome(ttft_s=1.2), False, "late", 611),
        (outcome(Status.CANCELLED), False, "cancelled", 611),
        (outcome(Status.FAILED), False, "failed", 611),
        (outcome(Status.FAILED), True, "repeated", 611),
        (outcome(Status.REJECTED, endpoint=-1, output_tokens=0), False, None, 0),
    ],
)
def test_each_wasted_token_has_one_cause(ended: Outcome, again: bool, cause: str | None, tokens: int) -> None:
    book = GoodputBook()
    book.offered(KEY)
    book.ended(KEY, ended, SLO, again)
    found = {name: count for name, count in book.total.waste.by_cause().items() if count}
    assert found == ({} if cause is None else {cause: tokens})
    assert book.total.waste.total == tokens


def test_f049_recomputed_tokens_are_waste_even_of_a_good_request() -> None:
    """F049: what the engine computed twice counts as waste besides the outcome."""
    book = GoodputBook()
    book.offered(KEY)
    book.ended(KEY, outcome(), SLO, again=False, recomputed_tokens=900)
    assert book.total.good_tokens == 11
    assert book.total.waste == Waste(preempted=900)


def test_both_attainments_and_everybody_who_left() -> None:
    book = GoodputBook()
    ends = (Status.COMPLETED, Status.COMPLETED, Status.CANCELLED, Status.REJECTED, Status.FAILED)
    for status, ttft_s in zip(ends, (0.5, 2.0, 0.5, 0.5, 0.5), strict=True):
        book.offered(KEY)
        book.ended(KEY, outcome(status, ttft_s=ttft_s), SLO, again=False)
    book.offered(KEY)
    total = book.total
    assert (total.abandoned, total.rejected, total.failed, total.running) == (1, 1, 1, 1)
    assert total.attainment_finished == 0.5
    assert total.attainment_offered == pytest.approx(1 / 6)


def test_f067_an_answer_of_no_tokens_is_no_output() -> None:
    """F067: without a token nothing is known to have been computed, and nothing is good."""
    assert computed_tokens(outcome(Status.FAILED, output_tokens=0)) == 0
    assert computed_tokens(outcome(output_tokens=1)) == 601
