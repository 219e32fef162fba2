"""Whole-file writes: the old content or the new one, and nothing left behind."""

import pytest

from data.atomic_file import write_text_atomic


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
