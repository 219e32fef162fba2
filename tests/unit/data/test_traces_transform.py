"""Changes to streams of batches."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from data.errors import SettingError
from data.traces.batches import TextColumn, cut, with_columns
from data.traces.context import within_context
from data.traces.transform import Assignment, assign, merge, sample_sessions, scale_arrivals, stream_keys, window
from data.types import NO_PARENT, Request, TraceBatch


def made(rows: int = 1000, seed: int = 0, **more: Any) -> TraceBatch:
    rng = np.random.default_rng(seed)
    return TraceBatch(
        request_id=np.arange(rows, dtype=np.int64),
        arrival_s=np.cumsum(rng.exponential(1.0, rows)),
        input_tokens=np.full(rows, 16, dtype=np.int64),
        output_tokens=np.ones(rows, dtype=np.int64),
        output_budget=np.ones(rows, dtype=np.int64),
        hash_offsets=np.arange(rows + 1, dtype=np.int64),
        hashes=np.arange(rows, dtype=np.uint64),
        block_tokens=16,
        **more,
    )


def sessions(count: int = 200) -> TraceBatch:
    """Sessions of three calls each, together, their starts in order."""
    ids = np.arange(3 * count, dtype=np.int64)
    return with_columns(
        made(3 * count),
        arrival_s=(ids // 3) * 2.0 + (ids % 3) * 100.0,
        parent_id=np.where(ids % 3, ids - 1, NO_PARENT),
        think_time_s=np.where(ids % 3, 5.0, 0.0),
        session_id=[f"s{one // 3}" for one in ids.tolist()],
    )


def rows_of(batches: Any) -> list[Request]:
    return [row for batch in batches for row in batch.rows()]


def parts(batch: TraceBatch, size: int) -> list[TraceBatch]:
    return [cut(batch, start, start + size) for start in range(0, len(batch), size)]


def test_speed_changes_arrivals_but_not_think_times() -> None:
    (found,) = scale_arrivals([sessions()], 4.0)
    assert np.allclose(found.arrival_s * 4, sessions().arrival_s)
    assert found.think_time_s is not None
    assert found.think_time_s.max() == 5
    with pytest.raises(SettingError, match="speed"):
        list(scale_arrivals([made()], 0))


def test_window_of_an_open_loop() -> None:
    batch = made()
    found = rows_of(window(parts(batch, 64), 100, 200))
    expected = batch.arrival_s[(batch.arrival_s >= 100) & (batch.arrival_s < 200)]
    assert [row.arrival_s for row in found] == pytest.approx(expected - 100)
    kept = rows_of(window([batch], 100, 200, rebase=False))
    assert kept[0].arrival_s == expected[0]
    with pytest.raises(SettingError, match="empty window"):
        list(window([batch], 5, 5))


def test_window_takes_sessions_whole() -> None:
    found = rows_of(window(parts(sessions(), 7), 100, 150))
    assert len(found) == 3 * 25
    assert {row.session_id for row in found} == {f"s{number}" for number in range(50, 75)}
    ids = {row.request_id for row in found}
    assert all(row.parent_id == NO_PARENT or row.parent_id in ids for row in found)


@pytest.mark.parametrize("size", [1, 50, 600])
def test_samples_keep_sessions_whole_and_ignore_the_cut(size: int) -> None:
    found = rows_of(sample_sessions(parts(sessions(), size), 0.3, seed=1))
    assert rows_of(sample_sessions([sessions()], 0.3, seed=1)) == found
    counts = Counter(row.session_id for row in found)
    assert set(counts.values()) == {3}
    assert 40 <= len(counts) <= 80
    assert len(rows_of(sample_sessions([made()], 0.3, seed=1))) == pytest.approx(300, abs=50)
    assert rows_of(sample_sessions([made()], 1.0, seed=1)) == rows_of([made()])
    with pytest.raises(SettingError, match="share"):
        list(sample_sessions([made()], 0.0, seed=1))


@pytest.mark.parametrize("size", [1, 7, 600])
def test_what_outgrows_a_context_goes_with_all_that_follows_it(size: int) -> None:
    """Sessions of three turns of which the second is too long: the third goes with it."""
    batch = sessions()
    lengths = np.where(batch.request_id % 3 == 1, 9_000, 100)
    batch = with_columns(batch, input_tokens=lengths, output_tokens=np.full(len(batch), 50))
    skipped: dict[str, int] = {}
    found = rows_of(within_context(parts(batch, size), 9_049, skipped))
    number = len(batch) // 3
    assert [row.request_id % 3 for row in found] == [0] * number
    assert skipped == {"over_context": number, "turn_after_over_context": number}
    assert rows_of(within_context(parts(batch, size), 9_050)) == rows_of([batch])
    with pytest.raises(SettingError, match="context_tokens"):
        list(within_context([batch], 0))


def test_assignment_follows_its_shares_and_keeps_sessions_together() -> None:
    rules = [Assignment("tenant", {"big": 3, "small": 1}), Assignment("origin", {"B": 1, "C": 1}, by="tenant")]
    found = rows_of(assign(parts(sessions(2000), 100), rules, seed=7))
    shares = Counter(row.tenant for row in found)
    assert shares["big"] / len(found) == pytest.approx(0.75, abs=0.04)
    by_session: dict[str, set[str]] = {}
    by_tenant: dict[str, set[str]] = {}
    for row in found:
        by_session.setdefault(row.session_id, set()).add(row.tenant)
        by_tenant.setdefault(row.tenant, set()).add(row.origin)
    assert all(len(one) == 1 for one in by_session.values())
    assert all(len(one) == 1 for one in by_tenant.values())
    assert rows_of(assign([sessions(2000)], rules, seed=7)) == found
    assert rows_of(assign([sessions(2000)], rules, seed=8)) != found


def test_assignments_of_two_columns_are_independent() -> None:
    rules = [Assignment("tenant", {"a": 1, "b": 1}), Assignment("workload_class", {"x": 1, "y": 1})]
    found = Counter((row.tenant, row.workload_class) for row in rows_of(assign([made(8000)], rules, seed=0)))
    assert all(count == pytest.approx(2000, abs=200) for count in found.values())
    assert len(found) == 4


def test_names_of_the_trace_may_stay() -> None:
    batch = made(4, tenant=["mine", "", "", "mine"])
    found = rows_of(assign([batch], [Assignment("tenant", {"x": 1}, only_blank=True)], seed=0))
    assert [row.tenant for row in found] == ["mine", "x", "x", "mine"]


@pytest.mark.parametrize("shares", [{}, {"a": 0}, {"a": -1, "b": 2}, {"a": float("inf")}])
def test_weights_must_be_usable(shares: dict[str, float]) -> None:
    with pytest.raises(SettingError, match="weights"):
        Assignment("tenant", shares)


@pytest.mark.parametrize("size", [1, 13, 1000])
def test_merge_sorts_and_keeps_ids_and_prefixes_apart(size: int) -> None:
    left, right = made(300, seed=1), made(200, seed=2, tenant=TextColumn(np.zeros(200, dtype=np.int32), ("t",)))
    found = rows_of(merge([parts(left, size), parts(right, size)]))
    arrivals = [row.arrival_s for row in found]
    assert len(found) == 500
    assert arrivals == sorted(arrivals)
    assert len({row.request_id for row in found}) == 500
    assert len({row.block_hashes for row in found}) == 500
    assert sum(row.tenant == "t" for row in found) == 200
    shared = rows_of(merge([[left], [right]], separate_prefixes=False))
    assert len({row.block_hashes for row in shared}) == 300


def test_merge_keeps_closed_loops_in_place() -> None:
    found = rows_of(merge([parts(sessions(100), 10), parts(made(100), 9), []]))
    place = {row.request_id: number for number, row in enumerate(found)}
    assert len(place) == 400
    roots = [row.arrival_s for row in found if row.parent_id == NO_PARENT]
    assert roots == sorted(roots)
    assert all(row.parent_id == NO_PARENT or place[row.parent_id] < place[row.request_id] for row in found)
    assert {row.session_id for row in found if row.session_id}.pop().startswith("0/")


def test_merge_refuses_different_block_sizes() -> None:
    with pytest.raises(SettingError, match="block size"):
        list(merge([[made(5)], [with_columns(made(5), block_tokens=64)]]))


def test_stream_keys_of_turns_are_those_of_the_latest_root() -> None:
    assert stream_keys(sessions(2)).tolist() == [0, 0, 0, 2, 2, 2]
    assert stream_keys(made(2), before_s=99.0).tolist() == [99, 99]
