"""Who gets in: at most so many calls at a time, only known callers, only calls that somebody still waits for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from router.flow.unverified import UnverifiedSources, source_of
from router.serving.auth import ANYONE, Authenticator, Client, DeniedError

ON_BEHALF_OF = "tokenfleet-on-behalf-of"
"""Header in which a client that hands on the calls of others says whose one is; see ``owner_of``."""
MOST_OWNER_CHARACTERS = 256
CERTIFICATE_NAMES = ("x509_common_name", "x509_subject_alternative_name")


class CallRefusedError(Exception):
    """A call that ends with a gRPC status instead of an answer."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class CallGate:
    """Counts running calls of one kind and refuses beyond the limit, at once instead of queueing.

    Args:
        limit: Calls at a time.
        what: What is counted, for the message.
    """

    def __init__(self, limit: int, what: str) -> None:
        self.limit = limit
        self.running = 0
        self.refused = 0
        self._what = what

    @contextmanager
    def enter(self) -> Iterator[None]:
        """One call from here to the end of the block.

        Raises:
            CallRefusedError: ``RESOURCE_EXHAUSTED``: the limit is reached.
        """
        if self.running >= self.limit:
            self.refused += 1
            raise CallRefusedError(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"more than {self.limit} {self._what} at a time; try again"
            )
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1


def caller(authenticator: Authenticator, rpc: str, context: Any) -> Client:
    """The verified client of a call.

    Raises:
        CallRefusedError: ``UNAUTHENTICATED`` or ``PERMISSION_DENIED``.
    """
    if authenticator.open:
        return ANYONE
    names = [
        raw.decode("utf-8", "replace") for key in CERTIFICATE_NAMES for raw in context.auth_context().get(key, ())
    ]
    try:
        return authenticator.identify(rpc, context.invocation_metadata() or (), names)
    except DeniedError as error:
        code = grpc.StatusCode.PERMISSION_DENIED if error.verified else grpc.StatusCode.UNAUTHENTICATED
        raise CallRefusedError(code, str(error)) from error


def limited_caller(
    authenticator: Authenticator, unverified: UnverifiedSources, rpc: str, context: Any, now_s: float
) -> Client:
    """The verified client of a call; callers whose identity does not hold are limited by where they come from.

    Nothing is charged to a tenant for them.

    Raises:
        CallRefusedError: As :func:`caller`, or ``RESOURCE_EXHAUSTED`` for too many calls of one source.
    """
    try:
        return caller(authenticator, rpc, context)
    except CallRefusedError as error:
        if error.code is grpc.StatusCode.UNAUTHENTICATED:
            wait_s = unverified.take(source_of(context.peer()), now_s)
            if wait_s > 0:
                message = f"too many calls without valid credentials; try again in {wait_s:.0f} s"
                raise CallRefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, message) from error
        raise


def owner_of(client: Client, context: Any) -> str:
    """Who holds the leases of a call, and alone may report on them.

    A client that hands on the calls of others, such as an entry router, names its own caller. Whatever it says,
    the owner stands under its own verified name: nobody reaches another client's leases by it.

    Raises:
        CallRefusedError: ``INVALID_ARGUMENT``: the name is too long.
    """
    for key, value in context.invocation_metadata() or ():
        if key == ON_BEHALF_OF:
            if len(value) > MOST_OWNER_CHARACTERS:
                message = f"{ON_BEHALF_OF}: longer than {MOST_OWNER_CHARACTERS} characters"
                raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, message)
            return f"{client.name} for {value}"
    return client.name


def still_wanted(context: Any) -> None:
    """Raise ``CallRefusedError`` (``DEADLINE_EXCEEDED``) if the caller's deadline has passed."""
    left_s = context.time_remaining()
    if left_s is not None and left_s <= 0:
        raise CallRefusedError(
            grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline had passed before the call was begun"
        )
