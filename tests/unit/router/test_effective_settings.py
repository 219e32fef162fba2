"""Every option of a router tells its value and where that came from (F134)."""

from __future__ import annotations

from pathlib import Path

import pytest

from data.errors import DocumentError
from router.observe.effective_settings import effective_settings
from router.serving.service_settings import Given, ServiceSettings, read_knobs


def test_default_file_and_flag_are_told_apart_f134(tmp_path: Path) -> None:
    """F134: the value that counts, and its source, for every option."""
    path = tmp_path / "router.yaml"
    path.write_text("server: {drain_s: 30}\nseed: 7\nx-note: {a: 1}\n")
    knobs, keys = read_knobs(path)
    settings = ServiceSettings(
        fleet=Path("fleet.yaml"),
        policy_settings={"near_tie": 0.02},
        knobs=knobs,
        given=Given(frozenset({"fleet"}), path, keys),
    )
    found = {each.name: (each.value, each.source) for each in effective_settings(settings)}
    assert found["fleet"] == ("fleet.yaml", "flag")
    assert found["plan"] == (None, "default")
    assert found["settings"] == (str(path), "flag")
    # In the file, although it is the default's value.
    assert found["server.drain_s"] == (30.0, "file")
    assert found["server.tick_s"] == (0.25, "default")
    assert found["seed"] == (7, "file")
    assert found["policy.near_tie"] == (0.02, "flag")
    assert found["policy.harm_price"][1] == "default"
    assert found["listen.address"] == ("127.0.0.1:50051", "default")
    assert len(found) > 50


def test_a_value_by_a_way_that_does_not_exist_is_an_error_f134(tmp_path: Path) -> None:
    """F134: an option of a flag or of the policy in the settings file is refused, not ignored."""
    path = tmp_path / "router.yaml"
    for line in ("policy: round_robin", "near_tie: 0.1", "metrics_listen: 127.0.0.1:1", "server: {near_tie: 1}"):
        path.write_text(line + "\n")
        with pytest.raises(DocumentError, match="unknown key"):
            read_knobs(path)
