"""Which files are ours, which version they have, and how older versions become the present one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from data.errors import LogError
from data.log.schema import DECISIONS, OUTCOMES, SCHEMA_VERSION

SCHEMAS: Mapping[str, pa.Schema] = {"decisions": DECISIONS, "outcomes": OUTCOMES}
TABLE_KEY = b"tokenfleet_table"
VERSION_KEY = b"tokenfleet_schema"

Upgrade = Callable[[pa.Table, str], pa.Table]
"""Turns a table of one version into the next; the text is ``decisions`` or ``outcomes``."""

SINCE_VERSION_2 = ("expected_output_tokens", "prefill_load")
"""Decision columns that version 1 lacks."""
SINCE_VERSION_3 = "origin"
"""Decision column that versions 1 and 2 lack."""


def _from_version_1(data: pa.Table, table: str) -> pa.Table:
    """What version 1 did not record is unknown."""
    if table != "decisions":
        return data
    for name in SINCE_VERSION_2:
        data = data.append_column(name, pa.nulls(len(data), pa.float32()))
    return data


def _from_version_2(data: pa.Table, table: str) -> pa.Table:
    """Where a request came from was not recorded."""
    if table != "decisions":
        return data
    return data.append_column(SINCE_VERSION_3, pa.nulls(len(data), DECISIONS.field(SINCE_VERSION_3).type))


UPGRADES: Mapping[int, Upgrade] = {1: _from_version_1, 2: _from_version_2}
"""Upgrade from the version that is the key to the one after it; version 1 is the first."""


class ForeignFileError(Exception):
    """A file in the log's folder that is not part of the log; the text says why."""


def file_version(metadata: Mapping[bytes, bytes] | None, table: str) -> int:
    """Schema version that a file's metadata declare.

    Raises:
        ForeignFileError: It is not a file of this table.
    """
    metadata = metadata or {}
    if metadata.get(TABLE_KEY) != table.encode():
        raise ForeignFileError(f"no {table} table of a log")
    text = metadata.get(VERSION_KEY, b"")
    if not text.isdigit():
        raise ForeignFileError("no schema version")
    return int(text)


def upgrade(
    data: pa.Table, table: str, version: int, source: str, upgrades: Mapping[int, Upgrade] = UPGRADES
) -> pa.Table:
    """Bring a table of an older version to the present schema, one version at a time.

    Raises:
        LogError: The version is newer than this program, or no upgrade is known for it.
        ForeignFileError: The columns are not those of its version.
    """
    if version > SCHEMA_VERSION:
        raise LogError(
            "log schema is newer than this program",
            source=source,
            value=version,
            expected=f"at most {SCHEMA_VERSION}",
        )
    for step in range(version, SCHEMA_VERSION):
        if step not in upgrades:
            raise LogError("no upgrade from this log schema", source=source, value=step)
        data = upgrades[step](data, table)
    schema = SCHEMAS[table]
    if sorted(data.column_names) != sorted(schema.names):
        names = [*data.column_names, *schema.names]
        strange = sorted({name for name in names if names.count(name) != 2})
        raise ForeignFileError(f"columns differ: {', '.join(strange)}")
    return data.select(schema.names).cast(schema)
