"""Statistics of traces against plain calculations, and their bounds."""

from __future__ import annotations

import numpy as np
import pytest

from data.traces import stats
from data.traces.batches import TextColumn, cut
from data.traces.stats import Histogram, IdealCache, describe
from data.types import NO_PARENT, TraceBatch


def made(rows: int = 5000, seed: int = 0) -> TraceBatch:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 6, rows)
    # Prompts are paths in a tree: block ids 10 * parent + branch, so equal ids mean equal prefixes.
    ids: list[int] = []
    for count in counts.tolist():
        node = 1
        for branch in rng.integers(0, 3, count).tolist():
            node = node * 10 + branch + 1
            ids.append(node)
    return TraceBatch(
        request_id=np.arange(rows, dtype=np.int64),
        arrival_s=np.cumsum(rng.exponential(0.5, rows)),
        input_tokens=counts * 16 + rng.integers(1, 16, rows),
        output_tokens=rng.geometric(0.01, rows),
        output_budget=np.full(rows, 4096, dtype=np.int64),
        hash_offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        hashes=np.array(ids, dtype=np.uint64),
        block_tokens=16,
        tenant=TextColumn(rng.integers(0, 3, rows).astype(np.int32), ("a", "b", "c", "never")),
        session_id=[f"s{row // 3}" for row in range(rows)],
    )


def slow_hits(batch: TraceBatch) -> int:
    seen: set[int] = set()
    hits = 0
    for row in batch.rows():
        for block in row.block_hashes:
            if block not in seen:
                break
            hits += batch.block_tokens
        seen.update(row.block_hashes)
    return hits


@pytest.mark.parametrize("size", [1, 100, 5000])
def test_against_plain_calculations(size: int) -> None:
    batch = made()
    found = describe(cut(batch, start, start + size) for start in range(0, len(batch), size))
    gaps = np.diff(batch.arrival_s)
    minutes = np.bincount((batch.arrival_s // 60).astype(int))
    assert found.rows == 5000
    assert found.span_s == pytest.approx(float(gaps.sum()))
    assert found.gap_cv == pytest.approx(float(gaps.std() / gaps.mean()))
    assert found.busiest_minute_ratio == pytest.approx(minutes.max() / (5000 / (gaps.sum() / 60)))
    for values, spread in ((batch.input_tokens, found.input_tokens), (batch.output_tokens, found.output_tokens)):
        expected = np.percentile(values, [50, 90, 99], method="inverted_cdf")
        assert [spread.p50, spread.p90, spread.p99] == expected.tolist()
        assert (spread.mean, spread.most) == (pytest.approx(values.mean()), values.max())
    assert found.ideal_hit_share == pytest.approx(slow_hits(batch) / batch.input_tokens.sum())
    assert (found.sessions, found.tenants) == (1667, 3)
    assert not found.ideal_hit_is_bound
    assert found.think_time_p50_s is None


def test_a_full_memory_of_blocks_gives_a_lower_bound_and_says_so() -> None:
    batch = made()
    whole, part = describe([batch]), describe([batch], max_blocks=20)
    assert part.ideal_hit_is_bound
    assert part.blocks == 20
    assert part.ideal_hit_share is not None
    assert whole.ideal_hit_share is not None
    assert part.ideal_hit_share < whole.ideal_hit_share


def test_hits_never_exceed_the_prompt() -> None:
    cache = IdealCache(10)
    one = made(1)
    twice = TraceBatch(
        request_id=np.arange(2),
        arrival_s=np.zeros(2),
        input_tokens=np.array([20, 20]),
        output_tokens=np.ones(2, dtype=np.int64),
        output_budget=np.ones(2, dtype=np.int64),
        hash_offsets=np.array([0, 2, 4]),
        hashes=np.array([1, 2, 1, 2], dtype=np.uint64),
        block_tokens=16,
    )
    cache.add(twice)
    assert cache.hit_tokens == 20
    assert len(one) == 1


def test_lengths_beyond_the_exact_range_are_coarse_and_bounded() -> None:
    histogram = Histogram()
    histogram.add(np.array([5, 3_000_000, 3_000_001, 2**31]))
    spread = histogram.spread()
    assert spread.most == 2**31
    assert spread.p50 == pytest.approx(3_000_000, rel=1e-3)
    assert spread.p50 >= 3_000_000


def test_closed_loops_count_gaps_of_roots_and_think_times() -> None:
    batch = TraceBatch(
        request_id=np.arange(6),
        arrival_s=np.array([0.0, 50.0, 90.0, 10.0, 20.0, 80.0]),
        input_tokens=np.ones(6, dtype=np.int64),
        output_tokens=np.ones(6, dtype=np.int64),
        output_budget=np.ones(6, dtype=np.int64),
        hash_offsets=np.zeros(7, dtype=np.int64),
        hashes=np.zeros(0, dtype=np.uint64),
        parent_id=np.array([NO_PARENT, 0, 1, NO_PARENT, NO_PARENT, 4]),
        think_time_s=np.array([0.0, 17.0, 17.0, 0.0, 0.0, 400.0]),
    )
    found = describe([batch])
    assert found.gap_cv == 0, "session starts are 10 s apart"
    assert found.span_s == 90
    assert found.closed_loop_turns == 3
    assert found.think_time_p50_s == pytest.approx(17, rel=0.01)


def test_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "MAX_NAMES", 100)
    batch = made()
    found = describe([cut(batch, 0, 2000), cut(batch, 2000, 5000)])
    assert found.names_are_bound
    assert found.sessions is not None
    assert 100 <= found.sessions < 1667


def test_an_empty_trace() -> None:
    found = describe([])
    assert (found.rows, found.span_s, found.rate_per_s, found.ideal_hit_share) == (0, 0, 0, None)
    assert found.as_dict()["input_tokens"]["p50"] == 0
