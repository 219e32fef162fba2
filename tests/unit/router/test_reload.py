"""A changed file is swapped in whole or not at all, and the status says which."""

import asyncio
import os
from pathlib import Path

from data.errors import DocumentError, InputError
from router.serving.reload import MOST_ERRORS, WatchedFile, follow, reload_now


def number(path: Path) -> int:
    text = path.read_text()
    if not text.strip().isdigit():
        raise InputError("not a number", source=path.name, value=text)
    return int(text)


def watched(path: Path, taken: list[int]) -> WatchedFile[object]:
    def apply(value: object) -> None:
        assert isinstance(value, int)
        if value == 13:
            raise InputError("cannot be applied", value=value)
        taken.append(value)

    return WatchedFile("number", path, number, apply, str, active="1")


def test_a_good_change_is_swapped_in_and_a_bad_one_keeps_the_old_f129(tmp_path: Path) -> None:
    path = tmp_path / "n"
    path.write_text("1")
    taken: list[int] = []
    file = watched(path, taken)
    assert not file.changed()
    path.write_text("22")
    assert file.changed()
    assert file.take(file.read())
    assert (taken, file.status.active, file.status.errors) == ([22], "22", ())
    path.write_text("gold")
    assert file.changed()
    assert not file.take(file.read())
    assert taken == [22]
    assert file.status.active == "22"
    assert file.status.attempted == ""
    assert "not a number" in file.status.errors[0]
    path.write_text("13")
    assert file.changed()
    assert not file.take(file.read())
    assert (file.status.active, file.status.attempted) == ("22", "13")


def test_a_file_that_is_gone_is_a_fault_and_not_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "n"
    path.write_text("1")
    taken: list[int] = []
    file = watched(path, taken)
    path.unlink()
    assert file.changed()
    assert not file.take(file.read())
    assert taken == []
    assert "No such file" in file.status.errors[0]


def test_a_replaced_file_of_the_same_size_and_time_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "n"
    path.write_text("1")
    stat = path.stat()
    file = watched(path, [])
    aside = tmp_path / "aside"
    aside.write_text("2")
    os.utime(aside, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    aside.replace(path)
    assert file.changed()


def test_all_faults_of_a_document_stand_in_the_status_up_to_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "n"
    path.write_text("1")

    def faulty(_: Path) -> int:
        error = DocumentError("first")
        error.problems = tuple(InputError(f"fault {i}") for i in range(MOST_ERRORS + 5))
        raise error

    file: WatchedFile[object] = WatchedFile("n", path, faulty, lambda _: None, str, active="")
    file.take(file.read())
    assert len(file.status.errors) == MOST_ERRORS + 1
    assert file.status.errors[-1] == "and 5 more"


def test_following_reloads_each_change_once(tmp_path: Path) -> None:
    path = tmp_path / "n"
    path.write_text("1")
    taken: list[int] = []
    told: list[bool] = []
    file = watched(path, taken)
    looks = iter(["5", None, "bad", None])

    async def sleep(_: float) -> None:
        for text in looks:
            if text is not None:
                path.write_text(text)
            return
        raise asyncio.CancelledError

    async def run() -> None:
        try:
            await follow([file], 1.0, lambda _, swapped: told.append(swapped), sleep)
        except asyncio.CancelledError:
            return

    asyncio.run(run())
    assert (taken, told) == ([5], [True, False])
    path.write_text("6")
    assert asyncio.run(reload_now(file, lambda _, swapped: told.append(swapped)))
    assert taken == [5, 6]
