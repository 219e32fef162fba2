"""Who may ask the planner, and who may order it: bearer tokens with a role.

The tokens file holds digests, never tokens::

    tokens:
      - {name: dashboards, token_sha256: 3c1f..., role: read}       # printed by `tokenfleet token`
      - {name: on-call, token_sha256: 9a07..., role: operate}       # may do all that read may
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from data.strict.document import read_document
from data.strict.faults import Fault
from data.strict.rules import NAME, Rule, RuleBook
from router.serving.auth import token_digest

Role = Literal["read", "operate"]
ROLES: tuple[Role, ...] = ("read", "operate")
MOST_TOKEN_CHARACTERS = 256


@dataclass(frozen=True, slots=True)
class ApiToken:
    """One caller.

    Attributes:
        name: Stands in logs in place of any credential.
        token_sha256: Hexadecimal SHA-256 digest of its bearer token.
        role: ``read``, or ``operate``, which includes it.
    """

    name: str
    token_sha256: str
    role: Role = "read"


@dataclass(frozen=True, slots=True)
class TokensFile:
    """The whole file."""

    tokens: tuple[ApiToken, ...]


BOOK = RuleBook(
    annotations=True,
    rules={
        ApiToken: {
            "name": NAME,
            "token_sha256": Rule(
                pattern=r"[0-9a-f]{64}", text="64 hexadecimal digits, as `tokenfleet token` prints"
            ),
        }
    },
)


class Access:
    """Finds the caller of a request.

    Args:
        tokens: Who is known; ``None`` = anyone may do anything, which is for loopback only.
    """

    def __init__(self, tokens: Sequence[ApiToken] | None) -> None:
        self.open = tokens is None
        self._by_digest = {token.token_sha256: token for token in tokens or ()}

    def caller(self, token: str | None) -> ApiToken | None:
        """The caller with this bearer token; ``None`` = nobody known."""
        if token is None or len(token) > MOST_TOKEN_CHARACTERS:
            return None
        # What is not UTF-8 cannot be one of our tokens.
        digest = token_digest(token.encode("utf-8", "replace").decode())
        found = self._by_digest.get(digest)
        # The lookup is by digest, so its timing tells nothing of the token.
        return found if found is not None and hmac.compare_digest(found.token_sha256, digest) else None


def may(caller: ApiToken, role: Role) -> bool:
    """Whether the caller's role covers ``role``."""
    return ROLES.index(caller.role) >= ROLES.index(role)


def load_tokens(path: Path) -> tuple[ApiToken, ...]:
    """Read a tokens file.

    Raises:
        InputError: The file cannot be read.
        DocumentError: It is wrong; ``problems`` holds every fault.
    """
    return read_document(path, TokensFile, BOOK, _repeated, secret=True).tokens


def _repeated(file: TokensFile) -> list[Fault]:
    faults = []
    for field in ("name", "token_sha256"):
        values = [getattr(token, field) for token in file.tokens]
        for position, value in enumerate(values):
            if value in values[:position]:
                faults.append(Fault(("tokens", position, field), "repeated", expected="once"))
    return faults
