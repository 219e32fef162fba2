"""The scheduler's rules one by one, with times worked out by hand."""

from __future__ import annotations

import pytest

from data.catalog.types import ServiceTimes
from data.errors import SettingError, TraceError
from planner.sim.kv_cache import KvCache
from planner.sim.noise import LEAST_FACTOR, NoiseStream, uniform
from planner.sim.replica import IDLE, Replica
from planner.sim.sequence import Sequence
from planner.sim.step_times import StepTimes, run_s, steps_until

TIMES = ServiceTimes(p0=0.5, p1=0.01, p2=0.0, d0=1.0, d1=0.1, d2=0.001, host_overhead=0.2)


def make(capacity: int = 100, budget: int = 64, seats: int = 8, caching: bool = True) -> Replica:
    cache = KvCache(capacity, 16, caching)
    cache.use_segments(32)
    return Replica(cache, StepTimes(TIMES), NoiseStream(0.0, 1, 0), budget, seats)


def sequence(prompt: int, output: int, hashes: tuple[int, ...] = (), name: str = "") -> Sequence:
    return Sequence(prompt, output, hashes, min(len(hashes), prompt // 32), name)


def drain(replica: Replica) -> dict[str, list[float]]:
    """First-token and end times of everything, by owner."""
    times: dict[str, list[float]] = {}
    while replica.ends_s < IDLE:
        now = replica.ends_s
        firsts, ended = replica.finish(now)
        for item in [*firsts, *ended]:
            times.setdefault(item.owner, []).append(now)
    return times


def test_one_request_by_hand() -> None:
    replica = make()
    replica.submit(sequence(40, 3, name="a"), 10.0)
    # Prefill 0.5 + 0.4 + 0.2; then decode steps over 40 and 41 held tokens.
    first = 10.0 + 1.1
    end = first + (1.0 + 0.1 + 0.040 + 0.2) + (1.0 + 0.1 + 0.041 + 0.2)
    assert drain(replica)["a"] == pytest.approx([first, end])


def test_a_long_prompt_is_cut_into_chunks_and_decodes_go_first() -> None:
    replica = make(budget=50)
    short, long = sequence(40, 10, name="short"), sequence(120, 2, name="long")
    replica.submit(short, 0.0)
    replica.submit(long, 0.1)
    first_end = 0.5 + 0.4 + 0.2
    assert replica.ends_s == pytest.approx(first_end)
    replica.finish(first_end)
    # The one decode takes a token of the budget of 50, so the first chunk has 49; the fixed part is the larger.
    assert long.computed == 0
    assert replica.ends_s == pytest.approx(first_end + 1.0 + 0.49 + (0.1 + 0.040) + 0.2)
    replica.finish(replica.ends_s)
    assert long.computed == 49
    assert short.generated == 1  # synchronised when it leaves the group
    assert replica.progress(short) == (40 + 2, 1 + 2)  # one step made, one in progress


def test_prefix_hit_is_capped_one_token_below_the_prompt() -> None:
    replica = make()
    first, again = sequence(64, 1, (1, 2), "first"), sequence(64, 1, (1, 2), "again")
    replica.submit(first, 0.0)
    drain(replica)
    assert replica.notices == ((1, 2), ())
    replica.submit(again, 100.0)
    assert again.cached_tokens == 63
    assert replica.ends_s == pytest.approx(100.0 + 0.5 + 0.01 + 0.2)


def test_the_partial_last_block_is_never_shared() -> None:
    replica = make()
    replica.submit(sequence(50, 1, (1, 2), "first"), 0.0)
    drain(replica)
    again = sequence(50, 1, (1, 2), "again")
    replica.submit(again, 100.0)
    assert again.cached_tokens == 32


def test_sequences_of_one_step_share_what_the_first_registers() -> None:
    replica = make(budget=256)
    blocker = sequence(10, 1, name="blocker")
    twins = [sequence(64, 1, (1, 2), "one"), sequence(64, 1, (1, 2), "two")]
    replica.submit(blocker, 0.0)
    for twin in twins:
        replica.submit(twin, 0.1)
    replica.finish(replica.ends_s)
    assert [twin.cached_tokens for twin in twins] == [0, 63]


def test_without_caching_nothing_is_kept() -> None:
    replica = make(caching=False)
    replica.submit(Sequence(64, 1, (1, 2), 0, "a"), 0.0)
    drain(replica)
    assert replica.cache.resident() == 0
    assert replica.cache.free == replica.cache.capacity


def test_out_of_blocks_the_last_admitted_is_preempted_and_recomputed() -> None:
    replica = make(capacity=5, budget=64)
    old, young = sequence(30, 40, name="old"), sequence(30, 4, name="young")
    replica.submit(old, 0.0)
    replica.submit(young, 0.1)
    times = drain(replica)
    assert replica.queue.preemptions == young.preemptions == 1
    assert old.preemptions == 0
    # Preempted before its fourth token: prompt and three tokens are computed again, the first token came once.
    assert young.recomputed_tokens == 33
    assert len(times["young"]) == 2
    assert times["old"][1] < times["young"][1]


def test_first_come_first_served_even_if_a_later_one_would_fit() -> None:
    replica = make(capacity=6, budget=200)
    replica.submit(sequence(64, 30, name="runs"), 0.0)
    big, small = sequence(64, 1, name="big"), sequence(8, 1, name="small")
    replica.submit(big, 0.1)
    replica.submit(small, 0.2)
    times = drain(replica)
    assert times["big"][0] <= times["small"][0]


def test_seats_limit_the_batch() -> None:
    replica = make(seats=2)
    for name in "abc":
        replica.submit(sequence(5, 5, name=name), 0.0)
    most = 0
    while replica.ends_s < IDLE:
        most = max(most, len(replica.queue.running))
        replica.finish(replica.ends_s)
    assert most == 2


def test_arrival_cuts_a_jump_at_the_end_of_the_step_in_progress() -> None:
    replica = make()
    replica.submit(sequence(16, 1000, name="a"), 0.0)
    replica.finish(replica.ends_s)
    start, far = replica.starts_s, replica.ends_s
    assert far - start > 900
    step = 1.0 + 0.1 + 0.016 + 0.2
    replica.submit(sequence(16, 1, name="b"), start + 1.5 * step)
    assert replica.ends_s == pytest.approx(start + 2 * step + 0.001)


def test_cancel_takes_effect_when_the_step_ends() -> None:
    replica = make()
    victim, other = sequence(16, 1000, name="v"), sequence(16, 5, name="o")
    replica.submit(victim, 0.0)
    replica.submit(other, 0.0)
    while victim.generated == 0:
        replica.finish(replica.ends_s)
    replica.cancel(victim, replica.starts_s + 0.1)
    _, ended = replica.finish(replica.ends_s)
    assert victim not in ended
    assert victim not in replica.queue.running
    assert drain(replica)["o"]
    assert replica.cache.used == 0


def test_cancel_while_waiting_and_while_hung() -> None:
    replica = make(seats=1)
    first, second = sequence(16, 50, name="a"), sequence(16, 5, name="b")
    replica.submit(first, 0.0)
    replica.submit(second, 0.0)
    replica.cancel(second, 0.01)
    assert not replica.queue.waiting
    replica.hung = True
    replica.finish(replica.ends_s)
    assert replica.ends_s == IDLE
    replica.cancel(first, 50.0)
    assert not replica.queue.running
    assert replica.cache.used == 0
    replica.cancel(first, 51.0)  # a repeated cancel changes nothing
    assert replica.cache.used == 0


def test_crash_gives_back_everything_and_counts_whole_steps() -> None:
    replica = make()
    running, waiting = sequence(16, 1000, name="r"), sequence(16, 5, name="w")
    replica.submit(running, 0.0)
    replica.finish(replica.ends_s)
    step = 1.0 + 0.1 + 0.016 + 0.2
    replica.queue.waiting.append(waiting)
    lost = replica.crash(replica.starts_s + 1.5 * step)
    assert lost == [running, waiting]
    assert running.generated == 2
    assert replica.cache.free == replica.cache.capacity
    assert replica.ends_s == IDLE


def test_what_does_not_fit_is_told() -> None:
    replica = make(capacity=10)
    assert replica.fits(100, 60)
    assert not replica.fits(100, 61)


def test_limits_are_checked() -> None:
    cache = KvCache(10, 16)
    with pytest.raises(SettingError, match="max_seqs"):
        Replica(cache, StepTimes(TIMES), NoiseStream(0.0, 1, 0), 4, 8)
    with pytest.raises(SettingError, match="no time"):
        Replica(cache, StepTimes(ServiceTimes(0, 0, 0, 0, 0, 0)), NoiseStream(0.0, 1, 0), 64, 8)


def test_one_trace_has_one_block_size() -> None:
    cache = KvCache(10, 16)
    cache.use_segments(32)
    cache.use_segments(32)
    with pytest.raises(TraceError, match="block_tokens"):
        cache.use_segments(64)


def test_jump_time_is_the_sum_of_its_steps_and_is_inverted() -> None:
    times = StepTimes(TIMES)
    first, growth = times.first_step_s(7, 900), times.growth_s(7)
    steps = [TIMES.decode_s(7, 900 + 7 * j) + TIMES.host_overhead for j in range(50)]
    for k in range(1, 51):
        total = sum(steps[:k])
        assert run_s(first, growth, 1.0, k) == pytest.approx(total, rel=1e-12)
        assert steps_until(first, growth, 1.0, total - 1e-6) == k
        assert steps_until(first, growth, 1.0, total + 1e-6) == k + 1
    assert steps_until(2.0, 0.0, 1.5, 0.0) == 1
    assert steps_until(2.0, 0.0, 1.5, 9.0) == 3


def test_noise_depends_on_seed_replica_and_index_alone() -> None:
    one, two, other = NoiseStream(0.1, 7, 3), NoiseStream(0.1, 7, 3), NoiseStream(0.1, 7, 4)
    draws = [one.factor(1) for _ in range(300)]
    assert draws == [two.factor(1) for _ in range(300)]
    assert draws != [other.factor(1) for _ in range(300)]
    mean = sum(draws) / 300
    spread = (sum((x - mean) ** 2 for x in draws) / 300) ** 0.5
    assert mean == pytest.approx(1.0, abs=0.02)
    assert spread == pytest.approx(0.1, rel=0.15)
    assert min(NoiseStream(0.5, 1, 0).factor(1) for _ in range(2000)) >= LEAST_FACTOR


def test_noise_of_a_jump_shrinks_with_its_length() -> None:
    stream = NoiseStream(0.2, 1, 0)
    draws = [stream.factor(100) for _ in range(500)]
    assert max(abs(x - 1.0) for x in draws) < 0.1


def test_keyed_draws_are_even() -> None:
    draws = [uniform(5, 2, i) for i in range(4000)]
    assert all(0.0 <= x < 1.0 for x in draws)
    assert sum(draws) / 4000 == pytest.approx(0.5, abs=0.02)
    assert sum(x < 0.1 for x in draws) / 4000 == pytest.approx(0.1, abs=0.02)
    assert uniform(5, 2, 9) == uniform(5, 2, 9) != uniform(5, 3, 9)


def test_equal_prompts_computed_side_by_side_are_merged() -> None:
    replica = make(budget=40)
    twins = [sequence(96, 1, (1, 2, 3), name) for name in ("one", "two")]
    for twin in twins:
        replica.submit(twin, 0.0)
    highest = 0
    while replica.ends_s < IDLE:
        highest = max(highest, replica.cache.used)
        replica.finish(replica.ends_s)
    # The second began when the first had finished two of its three blocks; the third exists once.
    assert replica.cache.resident() == 3
    assert replica.cache.used == 0
    assert replica.cache.cached_free == 6
    assert highest <= 8


def test_a_copy_of_a_resident_segment_is_given_back() -> None:
    cache = KvCache(10, 16)
    cache.use_segments(32)
    cache.take(4)
    cache.commit((1,), 0, 1)
    cache.commit((1,), 0, 1)
    assert (cache.used, cache.free) == (2, 8)
    cache.release((1,), 1)
    cache.release((1,), 1)
    assert (cache.used, cache.cached_free, cache.free) == (0, 2, 8)
    cache.take(2)
    cache.commit((1,), 0, 1)  # resident, held by nobody
    assert (cache.used, cache.cached_free, cache.free) == (2, 0, 8)


def test_only_the_net_change_of_a_step_is_published() -> None:
    cache = KvCache(4, 16)
    cache.use_segments(32)
    cache.take(2)
    cache.commit((1,), 0, 1)
    cache.release((1,), 1)
    cache.take(4)  # evicts it again
    cache.give(2)
    cache.commit((2,), 0, 1)
    assert cache.collect() == ((2,), ())
    cache.release((2,), 1)
    cache.take(4)
    cache.give(2)
    cache.commit((2,), 0, 1)  # evicted and computed again: nothing to tell
    assert cache.collect() == ((), ())
    assert cache.collect() is None
