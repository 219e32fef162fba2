"""Log lines of repeated failures."""

from __future__ import annotations

from router.feeds.log_gate import LogGate


def test_a_thousand_failures_get_at_most_twenty_lines() -> None:
    """F003: at any pace; the count stays true."""
    for pause_s in (0.0, 0.05, 0.25, 60.0):
        gate = LogGate()
        lines = sum(gate.failed(pause_s * number) for number in range(1000))
        assert 1 <= lines <= 20
        assert (gate.total, gate.in_a_row) == (1000, 1000)


def test_the_first_failure_after_a_recovery_is_told_and_the_recovery_too() -> None:
    gate = LogGate()
    assert gate.failed(0.0)
    assert gate.succeeded() == 1
    assert gate.succeeded() == 0
    assert gate.failed(100.0)


def test_what_fails_and_recovers_in_turn_is_no_flood() -> None:
    """F003: each recovery starts the row again, the window does not."""
    gate = LogGate(lines=4, window_s=60.0)
    lines = 0
    for number in range(1000):
        lines += gate.failed(0.25 * number)
        lines += gate.succeeded() > 0
    assert lines <= 2 * 4 * 5
    assert gate.total == 1000
