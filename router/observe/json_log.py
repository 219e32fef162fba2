"""Log lines as JSON, one object a line, for machines that collect them."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

import orjson

LOGGER = "tokenfleet"
_PLAIN = frozenset(vars(logging.makeLogRecord({})))


class JsonFormatter(logging.Formatter):
    """A record as one JSON object: time, level, logger, message, and what the caller gave as ``extra``.

    Any text is safe: the object is made by a serializer.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line, without its end."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update((key, value) for key, value in vars(record).items() if key not in _PLAIN and key not in line)
        if record.exc_info and record.exc_info[0] is not None:
            # The kind and place of an exception; its text may hold what a caller sent.
            line["exception"] = record.exc_info[0].__name__
            trace = record.exc_info[2]
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            if trace is not None:
                line["at"] = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def log_to(stream: TextIO | None = None, level: int = logging.INFO) -> logging.Handler:
    """Send the project's log lines to ``stream`` (standard error by default) as JSON; gives the handler."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger(LOGGER)
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    return handler
