"""Options that ``route``, ``explain`` and ``report`` share: which router, who asks, and what the request is."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from data.errors import InputError, TokenFleetError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import grpc

    from router.client import Query, RouterClient

Command = TypeVar("Command", bound=Callable[..., Any])
DEFAULT_ROUTER = "127.0.0.1:50051"
TOKEN_VARIABLE = "TOKENFLEET_TOKEN"
_PATH = click.Path(path_type=Path)

CONNECTION = (
    click.option("--router", "target", default=DEFAULT_ROUTER, show_default=True, help="Address of the router."),
    click.option("--token-file", type=_PATH, help=f"File with the bearer token [${TOKEN_VARIABLE}]."),
    click.option("--ca", "ca_file", type=_PATH, help="Certificates of the router's authority; turns TLS on."),
    click.option("--cert", "certificate_file", type=_PATH, help="Own certificate, for mutual TLS."),
    click.option("--key", "key_file", type=_PATH, help="Its private key."),
    click.option("--deadline", "deadline_s", type=float, default=5.0, show_default=True, help="Time limit, s."),
    click.option("--json", "as_json", is_flag=True, help="Machine output on stdout."),
)
REQUEST = (
    click.option("--model", required=True, metavar="NAME@VERSION", help="Model version."),
    click.option("--input-tokens", type=click.IntRange(min=1), help="Prompt length."),
    click.option("--output-budget", type=click.IntRange(min=0), default=0, help="Bound on the output [context]."),
    click.option("--tokens", "tokens_file", type=_PATH, help="File of token ids, separated by white space."),
    click.option("--hashes", "hashes_file", type=_PATH, help="File of block hashes, separated by white space."),
    click.option("--block-tokens", type=click.IntRange(min=0), default=0, help="Tokens in a hashed block."),
    click.option("--tenant", default="", help="Tenant, where the credentials name none."),
    click.option("--class", "workload_class", default="", help="Class hint."),
    click.option("--task", "task_type", default="", help="Task type."),
    click.option("--origin", default="", help="Site where the request entered."),
    click.option("--session", "session_id", default="", help="Session."),
    click.option("--adapter", default="", help="LoRA adapter."),
)


def options(*groups: tuple[Callable[[Command], Command], ...]) -> Callable[[Command], Command]:
    """A decorator that adds the options of all groups, in their order."""

    def decorate(command: Command) -> Command:
        for option in reversed([option for group in groups for option in group]):
            command = option(command)
        return command

    return decorate


def query(given: dict[str, Any]) -> Query:
    """The question that the options describe.

    Raises:
        InputError: Neither a length nor a prompt was given, or a file holds something else than numbers.
    """
    from router.client import Query

    tokens = _numbers(given["tokens_file"], 32)
    hashes = _numbers(given["hashes_file"], 64)
    if not given["input_tokens"] and not tokens:
        raise InputError("the prompt's length is not known", expected="--input-tokens or --tokens")
    names = ("model", "output_budget", "block_tokens", "tenant", "workload_class", "task_type", "origin")
    return Query(
        input_tokens=given["input_tokens"] or 0,
        token_ids=tokens,
        block_hashes=hashes,
        session_id=given["session_id"],
        adapter=given["adapter"],
        **{name: given[name] for name in names},
    )


@contextmanager
def connected(given: dict[str, Any]) -> Iterator[RouterClient]:
    """A client of the router that the options name; what gRPC says becomes a clear error.

    Raises:
        InputError: A credential file cannot be read, or the router refuses the call as wrong.
        TokenFleetError: The router cannot be reached or did not answer in time.
    """
    import grpc

    from router.client import ClientSettings, RouterClient
    from router.client.settings import Identity

    identity = Identity(
        _token(given["token_file"]), given["ca_file"], given["certificate_file"], given["key_file"]
    )
    with RouterClient(given["target"], ClientSettings(deadline_s=given["deadline_s"]), identity) as client:
        try:
            yield client
        except grpc.RpcError as error:
            # Errors of a call are calls themselves; the base class does not say so.
            call = cast("grpc.Call", error)
            code, details = call.code(), call.details()
            if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise TokenFleetError(f"router {given['target']}: {details}") from error
            raise InputError(f"{code.name.lower()}: {details}", source=f"router {given['target']}") from error


def _token(path: Path | None) -> str:
    if path is not None:
        return path.read_text(encoding="utf-8").strip()
    return os.environ.get(TOKEN_VARIABLE, "")


def _numbers(path: Path | None, bits: int) -> tuple[int, ...]:
    if path is None:
        return ()
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        for word in line.split():
            if not (word.isascii() and word.isdigit() and int(word) < 1 << bits):
                expected = f"whole numbers of at most {bits} bits"
                raise InputError("not a number", source=str(path), line=number, value=word, expected=expected)
            found.append(int(word))
    return tuple(found)
