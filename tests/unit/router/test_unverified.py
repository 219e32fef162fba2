"""Callers without valid credentials have a budget for each source."""

from __future__ import annotations

import pytest

from router.flow.unverified import MAX_SOURCES, UnverifiedSources, source_of


def test_each_source_has_its_own_budget_f149() -> None:
    """F149: a thousand calls of one source take nothing from another one."""
    sources = UnverifiedSources(10.0)
    assert sum(sources.take("10.0.0.7", 0.0) == 0.0 for _ in range(1000)) == 10
    assert sources.take("10.0.0.7", 0.0) == pytest.approx(0.1)
    assert sources.take("10.0.0.8", 0.0) == 0.0
    assert sources.take("10.0.0.7", 0.11) == 0.0


def test_sources_are_bounded_in_memory() -> None:
    sources = UnverifiedSources(1.0)
    for number in range(MAX_SOURCES + 500):
        sources.take(str(number), 0.0)
    assert len(sources) == MAX_SOURCES


@pytest.mark.parametrize(
    ("peer", "source"),
    [
        ("ipv4:10.0.0.7:51234", "ipv4:10.0.0.7"),
        ("ipv6:%5B::1%5D:51234", "ipv6:%5B::1%5D"),
        ("unix:/run/router", "unix:/run/router"),
    ],
)
def test_a_source_is_a_host(peer: str, source: str) -> None:
    assert source_of(peer) == source
