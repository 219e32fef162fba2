"""Whole-file writes: the old content or the new one, and nothing left behind."""

import errno
import os

import pytest

from data.atomic_file import replacing, write_text_atomic


def test_content_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "file.txt"
    write_text_atomic(path, "one\n")
    write_text_atomic(path, "zwei ä\n")
    assert path.read_bytes() == "zwei ä\n".encode()
    assert path.stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.txt"]


def test_a_failed_write_leaves_nothing_behind(tmp_path):
    folder = tmp_path / "folder"
    (folder / "full").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        write_text_atomic(folder, "text")
    with pytest.raises(UnicodeEncodeError):
        write_text_atomic(tmp_path / "file.txt", "\ud800")
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_the_old_content_stays_when_writing_breaks_off(tmp_path, error):
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(type(error)) as told:
        _break_off(path, error)
    assert isinstance(error, KeyboardInterrupt) or told.value.filename == str(path)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.txt"]


def test_a_pipe_or_device_is_never_replaced_by_a_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(FileExistsError, match="device stands there"):
        write_text_atomic(pipe, "text")
    assert pipe.is_fifo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["pipe"]


def test_a_missing_folder_is_told_with_the_name_that_was_asked_for(tmp_path):
    with pytest.raises(FileNotFoundError) as told:
        write_text_atomic(tmp_path / "gone" / "file.txt", "text")
    assert told.value.filename == str(tmp_path / "gone" / "file.txt")


def _break_off(path, error):
    with replacing(path) as aside:
        aside.write_text("half")
        raise error
