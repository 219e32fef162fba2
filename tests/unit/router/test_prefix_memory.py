"""What the prefix index can need is told, and refused, before it is built."""

from __future__ import annotations

import numpy as np
import pytest

from data.errors import SettingError
from router.prefix.index import PrefixIndex, PrefixIndexSettings
from router.prefix.memory import check_memory, estimate_memory


def test_a_block_size_of_one_is_refused_with_a_better_one_f022() -> None:
    """F022: 120 endpoints × 500,000 tokens in blocks of 1 against 512 MiB: refused; blocks of 64 start."""
    with pytest.raises(
        SettingError, match=r"60,000,000 entries of 1 tokens.*expected block_tokens \d+ or more"
    ) as caught:
        check_memory(120, 500_000, 1, 512 << 20)
    suggested = int(str(caught.value).split("block_tokens ")[-1].split()[0])
    assert 1 < suggested <= 64
    found, warnings = check_memory(120, 500_000, suggested, 512 << 20)
    assert found.total_bytes <= 512 << 20
    found, warnings = check_memory(120, 500_000, 64, 512 << 20)
    assert found.entries == 120 * 7813
    assert warnings == ()


def test_small_blocks_are_warned_about_f022() -> None:
    """F022: below 16 tokens a warning, even if it fits."""
    _, warnings = check_memory(1, 10_000, 8, 1 << 30)
    assert len(warnings) == 1
    assert "8 tokens" in warnings[0]


def test_a_limit_that_no_block_size_meets_is_said_so() -> None:
    with pytest.raises(SettingError, match="expected a larger limit"):
        check_memory(1_000, 100, 1, 1 << 10)


@pytest.mark.parametrize("wrong", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_numbers_below_one_are_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(SettingError, match=">= 1"):
        check_memory(*wrong, max_bytes=1)


@pytest.mark.parametrize("mode", ["engine", "approximate"])
def test_a_full_index_stays_within_the_estimate(mode: str) -> None:
    """The estimate is a bound: what is really allocated when every endpoint is full is not above it."""
    bound = estimate_memory(8, 4_000 * 16, 16, mode)  # type: ignore[arg-type]
    index = PrefixIndex(8, PrefixIndexSettings(max_bytes=1 << 30))
    rng = np.random.default_rng(0)
    for row in range(8):
        index.set_capacity(row, 4_000) if mode == "approximate" else None
        for _ in range(40):
            blocks = rng.integers(0, 2**64, 100, dtype=np.uint64)
            index.sent(row, blocks) if mode == "approximate" else index.stored(row, blocks)
    while index.upkeep():
        pass
    assert len(index) == bound.entries
    assert index.memory_bytes() <= bound.total_bytes + 8192


def test_settings_of_the_index_are_checked() -> None:
    for wrong in ({"max_bytes": 1}, {"expected_blocks": -1}):
        with pytest.raises(SettingError, match=next(iter(wrong))):
            PrefixIndexSettings(**wrong)
