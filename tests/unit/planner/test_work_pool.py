"""The local work pool: order, errors, deaths, deadlines and bounded work in flight."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from data.errors import InputError, SettingError
from planner.local_pool import LocalPool
from planner.run_pool import RunPool
from planner.work_pool import WorkError, WorkSettings, died_error, in_order


def square(number: int) -> int:
    return number * number


def square_elsewhere(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def refuse_three(number: int) -> int:
    if number == 3:
        raise InputError("no such thing", source="fleet.yaml", line=3)
    return number


def die_at_three(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die_the_first_time(marker: Path) -> str:
    if not marker.exists():
        marker.write_text("was here")
        os.kill(os.getpid(), signal.SIGKILL)
    return marker.read_text()


def never_done(number: int) -> int:
    threading.Event().wait()
    return number


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_jobs(workers: int) -> None:
    with LocalPool(workers) as pool:
        assert list(in_order(pool, square, range(9))) == [number * number for number in range(9)]
        assert dict(pool.map(square, range(9))) == {number: number * number for number in range(9)}
        assert list(pool.map(square, [])) == []


def test_several_workers_are_other_processes() -> None:
    with LocalPool(2) as pool:
        found = list(in_order(pool, square_elsewhere, range(6)))
    assert [value for value, _ in found] == [0, 1, 4, 9, 16, 25]
    assert os.getpid() not in {pid for _, pid in found}


def test_results_that_finish_early_wait_for_those_before_them() -> None:
    class Backwards:
        workers = 1

        def map(self, function: Any, jobs: Sequence[Any]) -> Iterator[tuple[int, Any]]:
            for index in reversed(range(len(jobs))):
                yield index, function(jobs[index])

        def __enter__(self) -> Backwards:
            return self

        def __exit__(self, *raised: Any) -> None:
            pass

    assert list(in_order(Backwards(), square, [3, 1, 2])) == [9, 1, 4]
    told: list[str] = []
    with RunPool(Backwards()) as pool:
        runs: Any = pool.run(
            lambda arm, seed: (arm, seed),  # type: ignore[arg-type,return-value]
            [("a", 0), ("b", 1)],  # type: ignore[list-item]
            lambda arm, seed, run: told.append(arm),  # type: ignore[arg-type]
        )
    assert runs == [("a", 0), ("b", 1)]
    assert told == ["b", "a"]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_keeps_its_kind_and_its_words(workers: int) -> None:
    with pytest.raises(InputError, match=r"fleet\.yaml:3: no such thing"), LocalPool(workers) as pool:
        list(pool.map(refuse_three, range(9)))


def test_a_job_whose_worker_died_is_tried_again(tmp_path: Path) -> None:
    with LocalPool(2) as pool:
        markers = [tmp_path / str(number) for number in range(2)]
        settings_with_room = WorkSettings(retries=4)
        pool.settings = settings_with_room
        assert list(in_order(pool, die_the_first_time, markers)) == ["was here"] * 2
        assert list(in_order(pool, square, range(4))) == [0, 1, 4, 9]


def test_a_job_that_always_kills_its_worker_is_named_and_nobody_stays_behind() -> None:
    before = {child.pid for child in multiprocessing.active_children()}
    with pytest.raises(WorkError, match="worker process died 2 times"), LocalPool(2) as pool:
        list(pool.map(die_at_three, range(3, 9)))
    assert {child.pid for child in multiprocessing.active_children()} <= before


def test_a_deadline_ends_jobs_that_hang() -> None:
    before = {child.pid for child in multiprocessing.active_children()}
    with (
        pytest.raises(WorkError, match=r"3 of 3 jobs unfinished after the deadline of 0\.5 s"),
        LocalPool(2, WorkSettings(deadline_s=0.5)) as pool,
    ):
        list(pool.map(never_done, range(3)))
    assert {child.pid for child in multiprocessing.active_children()} <= before


def test_a_deadline_is_looked_at_between_jobs_of_this_process() -> None:
    clock = iter([0.0, 1.0, 4.0, 11.0])
    pool = LocalPool(1, WorkSettings(deadline_s=10.0), clock=lambda: next(clock))
    done = pool.map(square, range(5))
    assert [next(done), next(done)] == [(0, 0), (1, 1)]
    with pytest.raises(WorkError, match="3 of 5 jobs unfinished"):
        next(done)


class Counted(Sequence[int]):
    """Jobs that note which of them have been asked for."""

    def __init__(self, count: int) -> None:
        self.count, self.asked = count, 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: Any) -> Any:
        self.asked = max(self.asked, index + 1)
        return index


def test_few_jobs_are_handed_out_ahead() -> None:
    jobs = Counted(50)
    with LocalPool(2, WorkSettings(in_flight=2)) as pool:
        results = pool.map(square, jobs)
        next(results)
        assert jobs.asked <= 2 * 2 + 1
        assert len(list(results)) == 49


@pytest.mark.parametrize(
    ("values", "field"),
    [({"in_flight": 0}, "in_flight"), ({"retries": -1}, "retries"), ({"deadline_s": 0.0}, "deadline_s")],
)
def test_settings_out_of_range_are_named(values: dict[str, Any], field: str) -> None:
    with pytest.raises(SettingError) as caught:
        WorkSettings(**values)
    assert caught.value.field == field


def test_a_pool_needs_a_worker_and_long_jobs_are_cut_in_messages() -> None:
    with pytest.raises(SettingError, match="workers"):
        LocalPool(0)
    assert len(str(died_error("x" * 500, 1))) < 250
