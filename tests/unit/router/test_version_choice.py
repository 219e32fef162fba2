"""Requests without a version: shared as the plan's ramp says, and never with the wrong version."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from data.plan import VersionRamp
from router.version_choice import VersionChoice


def choice(share: float) -> VersionChoice:
    return VersionChoice([VersionRamp("chat", "chat@v1", "chat@v2", share, "2026-01-01T00:00:00Z", "ramp-1")])


def test_the_share_of_sessions_is_the_ramps_f116() -> None:
    """F116: within what 20,000 sessions can tell; 0 is none and 1 is all."""
    for share in (0.0, 0.1, 0.5, 1.0):
        found = [choice(share).key("chat", f"session-{i}") for i in range(20_000)]
        assert abs(found.count("chat@v2") / 20_000 - share) < 0.01 * (0 < share < 1) + 1e-9
        assert found.count("chat@v1") + found.count("chat@v2") == 20_000


@given(st.text(max_size=40), st.floats(0, 1), st.floats(0, 1))
def test_a_session_that_has_moved_stays_while_the_share_grows_f116(session: str, one: float, other: float) -> None:
    low, high = sorted((one, other))
    if choice(low).key("chat", session) == "chat@v2":
        assert choice(high).key("chat", session) == "chat@v2"


@given(st.text(max_size=40), st.floats(0, 1))
def test_a_version_that_is_named_is_the_one_that_is_given(session: str, share: float) -> None:
    for model in ("chat@v1", "chat@v2", "code", "chat@"):
        assert choice(share).key(model, session) == model
        assert VersionChoice().key(model, session) == model
