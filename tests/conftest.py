"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is no fault of the code: examples are bounded by their number, not by time.
settings.register_profile("tokenfleet", deadline=None)
settings.load_profile("tokenfleet")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of public traces and measurements that are not part of the project."""
    if "TOKENFLEET_SHARED_DATA" in os.environ:
        return Path(os.environ["TOKENFLEET_SHARED_DATA"])
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    if os.environ.get("CI") != "true":
        pytest.skip("set TOKENFLEET_SHARED_DATA to the folder of the public traces")
    if not beside.is_dir():
        pytest.fail(f"CI=true but the public traces are not at {beside}")
    return beside
