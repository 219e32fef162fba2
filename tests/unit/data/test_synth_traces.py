"""Whole synthetic traces: order, ids, seeds, independence, closed loops, hot spells, memory."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from data.errors import SettingError
from data.synth.arrivals import HotSpell
from data.synth.assign import Assignment
from data.synth.mix import Stream, mix, synthesise, tenant_streams
from data.synth.profiles import AGENTIC, CHAT, CONVERSATION, DOCUMENT, PROFILES
from data.synth.sessions import mean_turns
from data.types import NO_PARENT, Request, TraceBatch

RATE = {"agentic": 1.0}
EVERY_PROFILE = pytest.mark.parametrize("name", sorted(PROFILES))


def rows(batches: Iterable[TraceBatch]) -> list[Request]:
    return [row for batch in batches for row in batch.rows()]


def small(name: str, duration_s: float = 900.0, seed: int = 3) -> list[Request]:
    return rows(synthesise(PROFILES[name], rate_per_s=RATE.get(name, 3.0), duration_s=duration_s, seed=seed))


@EVERY_PROFILE
def test_a_trace_is_sound(name: str) -> None:
    profile = PROFILES[name]
    trace = small(name)
    assert [row.request_id for row in trace] == list(range(len(trace)))
    assert all(a.arrival_s <= b.arrival_s for a, b in itertools.pairwise(trace))
    assert all(0 <= row.arrival_s < 900.0 for row in trace)
    assert all(row.input_tokens >= 1 and 1 <= row.output_tokens <= row.output_budget for row in trace)
    for row in trace:
        blocks = -(-row.input_tokens // row.block_tokens) if profile.prefix_ids else 0
        assert len(row.block_hashes) == blocks
    limit = max(kind.max_input_tokens for kind in profile.kinds)
    assert max(row.input_tokens for row in trace) <= limit


@EVERY_PROFILE
def test_same_seed_same_trace_and_another_seed_another(name: str) -> None:
    assert small(name) == small(name)
    assert small(name) != small(name, seed=4)


@EVERY_PROFILE
def test_a_longer_trace_begins_with_the_shorter(name: str) -> None:
    short, long = small(name, 300.0), small(name, 1200.0)
    assert long[: len(short)] == short
    assert len(long) > len(short)


@EVERY_PROFILE
def test_equal_block_ids_mean_equal_prefixes(name: str) -> None:
    before: dict[int, tuple[int, int]] = {}
    for row in small(name):
        previous = 0
        for position, block in enumerate(row.block_hashes):
            assert before.setdefault(block, (position, previous)) == (position, previous)
            previous = block


def test_mean_rate_is_the_one_asked_for() -> None:
    counts = [len(rows(synthesise(CHAT, rate_per_s=2.0, duration_s=3600.0, seed=s))) for s in range(12)]
    assert np.mean(counts) == pytest.approx(7200, rel=0.05)
    conversation = rows(synthesise(CONVERSATION, rate_per_s=2.0, duration_s=7200.0, seed=1))
    assert len(conversation) == pytest.approx(14_400, rel=0.05)


def test_a_trace_begins_in_mid_stream() -> None:
    trace = small("conversation", 3600.0)
    first, last = (sum(start <= row.arrival_s < start + 600 for row in trace) for start in (0, 3000))
    assert first == pytest.approx(last, rel=0.15)


def test_conversations_grow_and_share_their_system_prompt() -> None:
    trace = small("conversation", 1800.0)
    assert len({row.block_hashes[0] for row in trace}) == 1
    sessions: dict[str, list[Request]] = {}
    for row in trace:
        sessions.setdefault(row.session_id, []).append(row)
    pairs = [pair for turns in sessions.values() for pair in itertools.pairwise(turns)]
    went_on = [
        after.block_hashes[: before.input_tokens // 512] == before.block_hashes[: before.input_tokens // 512]
        for before, after in pairs
    ]
    assert np.mean(went_on) > 0.7
    assert all(row.parent_id == NO_PARENT for row in trace)


def test_closed_loop_turns_name_their_parent_and_their_think_time() -> None:
    trace = small("agentic", 3600.0)
    children = [row for row in trace if row.parent_id != NO_PARENT]
    assert len(children) > len(trace) / 2
    fixed_s, per_token_s = AGENTIC.service_s
    for row in children:
        parent = trace[row.parent_id]
        assert parent.session_id == row.session_id
        assert parent.request_id < row.request_id
        service_s = fixed_s + per_token_s * parent.output_tokens
        assert row.arrival_s == pytest.approx(parent.arrival_s + service_s + row.think_time_s)
    assert len({row.parent_id for row in children}) == len(children)
    assert all(row.think_time_s == 0.0 for row in trace if row.parent_id == NO_PARENT)


def test_first_readings_of_a_document_differ_and_later_ones_share_it() -> None:
    trace = rows(
        synthesise(replace(DOCUMENT, kinds=DOCUMENT.kinds[1:]), rate_per_s=1.0, duration_s=2000.0, seed=1)
    )
    by_session: dict[str, list[Request]] = {}
    for row in trace:
        by_session.setdefault(row.session_id, []).append(row)
    firsts = [turns[0].block_hashes[0] for turns in by_session.values()]
    assert len(set(firsts)) == len(firsts)
    shared = [
        sum(x == y for x, y in zip(a.block_hashes, b.block_hashes, strict=False)) / len(a.block_hashes)
        for turns in by_session.values()
        for a, b in itertools.pairwise(turns)
    ]
    assert np.median(shared) > 0.85


LABELS = {"model": "m@1", "workload_class": "interactive"}


def test_streams_are_merged_with_their_labels_and_unique_ids() -> None:
    streams = [
        Stream(CONVERSATION, 2.0, Assignment(tenant="a", origins=(("A", 1.0), ("B", 3.0)), **LABELS)),
        Stream(AGENTIC, 0.5, Assignment(tenant="b", origins=(("C", 1.0),), **LABELS)),
        Stream(CHAT, 1.0, Assignment(tenant="c", **LABELS)),
    ]
    trace = rows(mix(streams, duration_s=1200.0, seed=5))
    assert [row.request_id for row in trace] == list(range(len(trace)))
    assert all(a.arrival_s <= b.arrival_s for a, b in itertools.pairwise(trace))
    assert {(row.tenant, row.origin) for row in trace} == {("a", "A"), ("a", "B"), ("b", "C"), ("c", "")}
    assert {row.model for row in trace} == {"m@1"}
    at_b = sum(row.origin == "B" for row in trace) / sum(row.tenant == "a" for row in trace)
    assert at_b == pytest.approx(0.75, abs=0.05)
    for row in trace:
        if row.parent_id != NO_PARENT:
            assert trace[row.parent_id].session_id == row.session_id
        assert bool(row.block_hashes) == (row.tenant != "c")


def without_ids(trace: list[Request], tenant: str) -> list[Request]:
    return [replace(row, request_id=0, parent_id=0) for row in trace if row.tenant == tenant]


def test_adding_a_tenant_changes_no_other_draw() -> None:
    a, b = (Stream(CONVERSATION, 1.0, Assignment(tenant=name, **LABELS)) for name in "ab")
    alone = rows(mix([a], duration_s=600.0, seed=9))
    both = rows(mix([b, a], duration_s=600.0, seed=9))
    assert without_ids(both, "a") == without_ids(alone, "a")
    assert len(both) > len(alone)


def test_tenants_do_not_share_prompts_and_origins_of_one_do() -> None:
    streams = [
        Stream(CONVERSATION, 1.0, Assignment(tenant=name, origins=(("A", 1.0), ("B", 1.0)), **LABELS))
        for name in "ab"
    ]
    trace = rows(mix(streams, duration_s=600.0, seed=9))
    system = {name: {row.block_hashes[0] for row in trace if row.tenant == name} for name in "ab"}
    assert len(system["a"]) == len(system["b"]) == 1
    assert system["a"] != system["b"]


def test_a_hot_spell_raises_its_origin_and_leaves_the_others_alone() -> None:
    calm = Assignment(origins=(("A", 1.0), ("B", 1.0)))
    hot = replace(calm, hot_spells=(HotSpell("B", 1000.0, 2000.0, 5.0),))
    traces = [rows(synthesise(CHAT, rate_per_s=4.0, duration_s=3000.0, seed=2, assign=a)) for a in (calm, hot)]
    at_a = [[row.arrival_s for row in trace if row.origin == "A"] for trace in traces]
    assert at_a[0] == at_a[1]
    in_spell = [sum(row.origin == "B" and 1000 <= row.arrival_s < 2000 for row in trace) for trace in traces]
    assert in_spell[1] / in_spell[0] == pytest.approx(5.0, rel=0.15)
    before = [[row.arrival_s for row in t if row.origin == "B" and row.arrival_s < 1000] for t in traces]
    assert before[0] == pytest.approx(before[1])


def test_an_origin_that_is_silent_all_the_time_sends_nothing() -> None:
    silent = Assignment(origins=(("A", 1.0), ("B", 1.0)), hot_spells=(HotSpell("B", 0.0, 600.0, 0.0),))
    trace = rows(synthesise(CHAT, rate_per_s=2.0, duration_s=600.0, seed=2, assign=silent))
    assert {row.origin for row in trace} == {"A"}


def test_tenants_share_the_rate_by_zipf() -> None:
    assigns = [Assignment(tenant=f"t{k}") for k in range(3)]
    streams = tenant_streams(CHAT, 11.0, assigns)
    assert [stream.rate_per_s for stream in streams] == pytest.approx([6.0, 3.0, 2.0])


def test_bad_arguments_are_refused_at_once() -> None:
    for change, names in (
        ({"rate_per_s": 0.0}, "rate_per_s"),
        ({"rate_per_s": float("nan")}, "rate_per_s"),
        ({"duration_s": 0.0}, "duration_s"),
        ({"duration_s": float("inf")}, "duration_s"),
        ({"seed": -1}, "seed"),
    ):
        arguments = {"rate_per_s": 1.0, "duration_s": 10.0, "seed": 0, **change}
        with pytest.raises(SettingError, match=names):
            synthesise(CHAT, **arguments)  # type: ignore[arg-type]
    one = Stream(CHAT, 1.0)
    with pytest.raises(SettingError, match="different labels"):
        mix([one, one], duration_s=1.0, seed=0)
    with pytest.raises(SettingError, match="streams"):
        mix([], duration_s=1.0, seed=0)
    with pytest.raises(SettingError, match="block_tokens"):
        mix([one, Stream(replace(CHAT, name="x", block_tokens=64), 1.0)], duration_s=1.0, seed=0)


def test_mean_turns_is_what_whole_sessions_show() -> None:
    assert mean_turns(CHAT) == 1.0
    assert 1.6 < mean_turns(CONVERSATION) < 2.0


def test_memory_does_not_grow_with_the_trace() -> None:
    def peak(duration_s: float) -> int:
        tracemalloc.start()
        for _ in synthesise(CONVERSATION, rate_per_s=10.0, duration_s=duration_s, seed=1):
            pass
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    mean_turns(CONVERSATION)
    assert peak(3000.0) < 1.3 * peak(1000.0)
