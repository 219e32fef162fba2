"""Where the server listens, what it lets in and how it says goodbye."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from data.errors import InputError, SettingError
from router.policies.settings import Checked, above, whole


@dataclass(frozen=True, slots=True)
class ServerLimits(Checked):
    """Bounds of the server.

    Attributes:
        concurrent_calls: Unary calls that are served at a time; one more is refused at once. Health and reflection
            do not count.
        waiting_calls: Unary and streamed requests that may wait for their turn at a time, beside those.
        concurrent_streams: Open streams of ``RouteStream``, ``Report`` and ``Watch``, together.
        stream_window: Requests of one ``RouteStream`` that may be without a reply; then it reads no further.
        batch_requests: Most requests in one ``RouteBatch``.
        unverified_per_s: Calls a second of each source that cannot show who it is; more are refused unread.
        drain_s: Time that running streams and open leases get when the server goes down.
        tick_s: How often leases expire and endpoint states are looked at.
    """

    concurrent_calls: int = whole(1, 1024)
    waiting_calls: int = whole(1, 20_000)
    concurrent_streams: int = whole(1, 1024)
    stream_window: int = whole(1, 256)
    batch_requests: int = whole(1, 256)
    unverified_per_s: float = above(0.0, 10.0)
    drain_s: float = above(0.0, 30.0)
    tick_s: float = above(0.0, 0.25)


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of the server's certificate; with ``client_ca`` callers must show a certificate of that authority."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class ListenSettings:
    """Where to listen.

    Attributes:
        address: ``HOST:PORT`` or ``unix:PATH``; port 0 = any free one.
        tls: Certificate; ``None`` = plain text.
        allow_insecure: Listen beyond this machine although callers are not verified or the line is not encrypted.
    """

    address: str = "127.0.0.1:50051"
    tls: Tls | None = None
    allow_insecure: bool = False


def split_address(address: str, field: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT`` (an IPv6 host in brackets).

    Raises:
        SettingError: It has another form.
    """
    host, colon, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not bare or not port.isdecimal() or int(port) > 65535 or (":" in bare and bare == host):
        raise SettingError(
            "not an address", field=field, value=address, expected="HOST:PORT, such as 127.0.0.1:50051"
        )
    return bare, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_listen(listen: ListenSettings, verifies_callers: bool) -> None:
    """Refuse to listen beyond this machine without TLS and without knowing the callers.

    Args:
        listen: Where to listen.
        verifies_callers: A clients file is in use.

    Raises:
        SettingError: The address is malformed, or open to others without protection.
    """
    if listen.address.startswith("unix:"):
        return
    host, _ = split_address(listen.address, "listen")
    if is_loopback(host) or listen.allow_insecure:
        return
    verified = verifies_callers or (listen.tls is not None and listen.tls.client_ca is not None)
    if listen.tls is None or not verified:
        missing = "TLS" if listen.tls is None else "a clients file or a client certificate authority"
        raise SettingError(
            f"would listen beyond this machine without {missing}",
            field="listen",
            value=listen.address,
            expected="a loopback address, or TLS and verified callers, or --allow-insecure",
        )


def read_file(path: Path, field: str) -> bytes:
    """Content of a certificate or key.

    Raises:
        InputError: It cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path), field=field) from error
