"""Network addresses of engines: checked when a file is read, not at the first connection."""

from __future__ import annotations

import re
from dataclasses import dataclass

HOST = r"(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?)"
PORT = r"([1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])"
HTTP_PATTERN = rf"https?://{HOST}:{PORT}"
HTTP_TEXT = "http://host:port or https://host:port, port 1 to 65535, without a path"
ZMQ_PATTERN = rf"(tcp://{HOST}:{PORT}|ipc:///[^\s]+)"
ZMQ_TEXT = "tcp://host:port or ipc:///path/of/socket"
PATH_PATTERN = r"/[^\s#]*"
PATH_TEXT = "a path that starts with /"


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """Where an HTTP server listens."""

    host: str
    port: int
    tls: bool

    @property
    def authority(self) -> str:
        """``host:port`` as it stands in a request."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_http_address(text: str) -> HttpAddress:
    """The parts of a checked address.

    Raises:
        ValueError: If the text is not of the form that ``HTTP_TEXT`` tells.
    """
    if re.fullmatch(HTTP_PATTERN, text) is None:
        raise ValueError(f"not an HTTP address (got {text!r}); expected {HTTP_TEXT}")
    scheme, _, authority = text.partition("://")
    host, _, port = authority.rpartition(":")
    return HttpAddress(host.strip("[]"), int(port), scheme == "https")
