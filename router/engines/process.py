"""The start of the process, which every Prometheus client library tells under the same name."""

from __future__ import annotations

from router.engines.aliases import STARTED_AT_S, Alias, Row, Series

PROCESS_START = Row(STARTED_AT_S, "max", (Alias(Series("process_start_time_seconds"), "where the server has it"),))
"""Not on pages of servers with several API processes; then only counters tell a restart."""
