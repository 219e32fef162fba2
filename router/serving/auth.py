"""Who is calling: bearer tokens or client certificates, each bound to a client and, where set, to one tenant.

The clients file holds digests, never tokens::

    clients:
      - name: checkout-proxy
        token_sha256: 3c1f...            # printed by `tokenfleet token`
        tenant: shop                     # requests of this client belong to this tenant, whatever they say
        rpcs: [Route, RouteStream, RouteBatch, Report]
      - name: operator
        certificate_name: ops.example.org    # common or alternative name in a verified client certificate
        rpcs: [Explain, Watch]

A tenant named in a request counts only for clients that are bound to none. Nothing is charged to a tenant before
its caller is verified. Tokens are random and long, so one round of SHA-256 is enough to store them by.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from data.strict.document import read_document
from data.strict.faults import Fault
from data.strict.rules import NAME, Rule, RuleBook

RPCS = ("Route", "RouteStream", "RouteBatch", "Report", "Explain", "Watch", "Capacity")
"""Calls that a client may be allowed; health and reflection are open to all."""
TOKEN_BYTES = 32
AUTHORIZATION = "authorization"
_SCHEME = "bearer "
_MOST_TOKEN_CHARACTERS = 256


@dataclass(frozen=True, slots=True)
class Client:
    """One client of the router. Exactly one of ``token_sha256`` and ``certificate_name`` is set.

    Attributes:
        name: Stands in logs in place of any credential.
        token_sha256: Hexadecimal SHA-256 digest of its bearer token.
        certificate_name: Name in its verified certificate.
        tenant: Tenant that all its requests belong to; empty = the one that each request names.
        rpcs: What it may call.
    """

    name: str
    token_sha256: str = ""
    certificate_name: str = ""
    tenant: str = ""
    rpcs: tuple[str, ...] = RPCS


@dataclass(frozen=True, slots=True)
class ClientsFile:
    """The whole file."""

    clients: tuple[Client, ...]


BOOK = RuleBook(
    annotations=True,
    rules={
        Client: {
            "name": NAME,
            "token_sha256": Rule(
                pattern=r"[0-9a-f]{64}", text="64 hexadecimal digits, as `tokenfleet token` prints"
            ),
            "certificate_name": NAME,
            "tenant": NAME,
            "rpcs": Rule(pattern="|".join(RPCS), text="one of " + ", ".join(RPCS)),
        }
    },
)

ANYONE = Client("anonymous")
"""The caller where no clients file is given: allowed only on loopback."""


class DeniedError(Exception):
    """The caller may not do this.

    Args:
        verified: Whether the caller is known: known but not permitted, or not known at all.
        message: What is missing, without any part of a credential.
    """

    def __init__(self, verified: bool, message: str) -> None:
        super().__init__(message)
        self.verified = verified


class Authenticator:
    """Finds the client of a call.

    Args:
        clients: Who may call; ``None`` = anyone may do anything.
    """

    def __init__(self, clients: Sequence[Client] | None = None) -> None:
        self.open = clients is None
        known = clients or ()
        self._by_digest = {client.token_sha256: client for client in known if client.token_sha256}
        self._by_certificate = {client.certificate_name: client for client in known if client.certificate_name}

    def identify(
        self, rpc: str, metadata: Iterable[tuple[str, str | bytes]], certificate_names: Iterable[str] = ()
    ) -> Client:
        """The client of a call of ``rpc``.

        Args:
            rpc: One of ``RPCS``.
            metadata: Headers of the call, keys in lower case.
            certificate_names: Names in the caller's verified certificate.

        Raises:
            DeniedError: Nobody known, or not permitted.
        """
        if self.open:
            return ANYONE
        client = self._by_token(metadata)
        if client is None:
            found = (self._by_certificate.get(name) for name in certificate_names)
            client = next((named for named in found if named is not None), None)
        if client is None:
            raise DeniedError(False, "no valid bearer token and no known client certificate")
        if rpc not in client.rpcs:
            raise DeniedError(True, f"client {client.name} may not call {rpc}")
        return client

    def _by_token(self, metadata: Iterable[tuple[str, str | bytes]]) -> Client | None:
        for key, value in metadata:
            if key != AUTHORIZATION or not isinstance(value, str) or len(value) > _MOST_TOKEN_CHARACTERS:
                continue
            if value[: len(_SCHEME)].lower() != _SCHEME:
                continue
            digest = token_digest(value[len(_SCHEME) :].strip())
            client = self._by_digest.get(digest)
            # The lookup is by digest, so its timing tells nothing of the token; the comparison costs nothing.
            if client is not None and hmac.compare_digest(client.token_sha256, digest):
                return client
        return None


def token_digest(token: str) -> str:
    """What the clients file holds of a token: its SHA-256 digest in hexadecimal."""
    return hashlib.sha256(token.encode()).hexdigest()


def new_token() -> str:
    """A fresh bearer token of 256 random bits."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def load_clients(path: Path) -> tuple[Client, ...]:
    """Read a clients file.

    Raises:
        InputError: The file cannot be read.
        DocumentError: It is wrong; ``problems`` holds every fault.
    """
    document = read_document(path, ClientsFile, BOOK, lambda file: _client_faults(file.clients), secret=True)
    return document.clients


def _client_faults(clients: Sequence[Client]) -> list[Fault]:
    faults: list[Fault] = []
    seen: dict[str, int] = {}
    for position, client in enumerate(clients):
        if bool(client.token_sha256) == bool(client.certificate_name):
            expected = "exactly one of token_sha256 and certificate_name"
            faults.append(Fault(("clients", position), "wrong value", value=client.name, expected=expected))
        for field in ("name", "token_sha256", "certificate_name"):
            value = getattr(client, field)
            if not value:
                continue
            first = seen.setdefault(f"{field} {value}", position)
            if first != position:
                shown = value if field != "token_sha256" else "a digest"
                expected = f"not the same as clients[{first}]"
                faults.append(Fault(("clients", position, field), "repeated", value=shown, expected=expected))
    return faults
