"""What a router process checks and reads once, before it serves."""

from __future__ import annotations

import logging
import secrets
from pathlib import Path

from data.errors import InputError, SettingError
from router.feeds.index_memory import check_index_memory
from router.feeds.index_snapshots import IndexSnapshots
from router.feeds.probe_settings import ProbeSettings
from router.prompts.prefix_scope import ScopeKeys, scheme_of
from router.serving.fleet_file import ReadFleet
from router.serving.server_settings import read_file
from router.serving.service_settings import Knobs, ServiceSettings

LOG = logging.getLogger("tokenfleet.router")


def secret(path: Path | None) -> bytes:
    """The secret that parts the prefixes of tenants; without a file a fresh one."""
    return secrets.token_bytes(32) if path is None else read_file(path, "scope_secret").strip()


def probe_of(settings: ServiceSettings) -> tuple[ProbeSettings, str] | None:
    """How engines are probed, and the key that they want (empty = none); ``None`` = they are not.

    Raises:
        InputError: The file of the key cannot be read, or holds none.
    """
    if not settings.probe:
        return None
    probe = settings.knobs.probe
    if not probe.key_file:
        return probe, ""
    key = read_file(Path(probe.key_file), "probe.key_file").decode("ascii", "replace").strip()
    if not key or not key.isascii() or not key.isprintable():
        expected = "one line of printable ASCII"
        raise InputError("not a key", source=probe.key_file, field="probe.key_file", expected=expected)
    return probe, key


def check_memory(read: ReadFleet, knobs: Knobs) -> None:
    """Refuse an index that could not fit, and tell its bound."""
    bound, warnings = check_index_memory(read.endpoints.rows, read.fleet, knobs.prefix_index.max_bytes)
    for warning in warnings:
        LOG.warning("prefix index: %s", warning)
    if bound is not None:
        LOG.info("prefix index: at most %.0f MiB for %d blocks", bound.total_bytes / 2**20, bound.entries)


def snapshots(settings: ServiceSettings, keys: ScopeKeys) -> IndexSnapshots | None:
    """Where the index is kept for the next process; ``None`` = nowhere.

    Raises:
        SettingError: The next process could not use it.
    """
    if settings.index_snapshot is None:
        return None
    if settings.scope_secret is None:
        raise SettingError(
            "is of no use to the next process, which would draw another secret",
            field="index_snapshot",
            expected="a scope secret too",
        )
    return IndexSnapshots(settings.index_snapshot, scheme_of(keys))
