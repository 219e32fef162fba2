"""Tokens and certificates name a client, and a client is bound to what the file says."""

from pathlib import Path

import pytest

from data.errors import DocumentError, InputError
from router.serving.auth import (
    ANYONE,
    RPCS,
    Authenticator,
    Client,
    DeniedError,
    load_clients,
    new_token,
    token_digest,
)

TOKEN = "a-long-and-random-token"
SHOP = Client("proxy", token_sha256=token_digest(TOKEN), tenant="shop", rpcs=("Route", "Report"))
OPERATOR = Client("operator", certificate_name="ops.example.org")


def headers(value: str) -> list[tuple[str, str | bytes]]:
    return [("user-agent", "x"), ("authorization", value)]


def test_a_token_names_its_client_and_tenant() -> None:
    found = Authenticator([SHOP, OPERATOR]).identify("Route", headers(f"Bearer {TOKEN}"))
    assert found == SHOP
    assert found.tenant == "shop"


def test_a_verified_certificate_names_its_client() -> None:
    assert Authenticator([SHOP, OPERATOR]).identify("Watch", [], ["x", "ops.example.org"]) == OPERATOR


@pytest.mark.parametrize(
    "value",
    [
        "",
        TOKEN,
        f"Basic {TOKEN}",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {token_digest(TOKEN)}",
        "Bearer " + "x" * 999,
    ],
)
def test_anything_else_is_nobody_and_the_message_holds_no_credential(value: str) -> None:
    with pytest.raises(DeniedError) as caught:
        Authenticator([SHOP]).identify("Route", headers(value))
    assert not caught.value.verified
    assert TOKEN not in str(caught.value)


def test_a_known_client_may_call_only_what_the_file_allows() -> None:
    with pytest.raises(DeniedError, match="proxy may not call Explain") as caught:
        Authenticator([SHOP]).identify("Explain", headers(f"bearer {TOKEN}"))
    assert caught.value.verified


def test_without_a_file_anyone_may_call_and_with_an_empty_one_nobody() -> None:
    assert Authenticator().identify("Route", []) == ANYONE
    with pytest.raises(DeniedError):
        Authenticator([]).identify("Route", [])


def test_the_file_is_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "clients.yaml"
    path.write_text(
        f"clients:\n  - {{name: proxy, token_sha256: {token_digest(TOKEN)}, tenant: shop, rpcs: [Route]}}\n"
    )
    assert load_clients(path) == (
        Client("proxy", token_sha256=token_digest(TOKEN), tenant="shop", rpcs=("Route",)),
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{name: a}", "exactly one of token_sha256"),
        ("{name: a, token: abc}", "unknown key"),
        ("{name: a, token_sha256: abc}", "64 hexadecimal digits"),
        ("{name: a, certificate_name: x, rpcs: [Rout]}", "one of Route"),
    ],
)
def test_a_fault_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "clients.yaml"
    path.write_text(f"clients:\n  - {line}\n")
    with pytest.raises(InputError, match=message):
        load_clients(path)


def test_a_digest_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "clients.yaml"
    digest = token_digest(TOKEN)
    path.write_text(
        f"clients:\n  - {{name: a, token_sha256: {digest}}}\n  - {{name: b, token_sha256: {digest}}}\n"
    )
    with pytest.raises(InputError, match=r"not the same as clients\[0\]"):
        load_clients(path)


def test_new_tokens_are_long_and_differ() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 43
    assert set(ANYONE.rpcs) == set(RPCS)


def test_a_token_in_place_of_its_digest_is_not_shown_f150(tmp_path: Path) -> None:
    """F150: a clients file with a token where the digest belongs is refused without a word of it."""
    path = tmp_path / "clients.yaml"
    for wrong in (
        "- {name: a, token_sha256: CANARY-TOKEN}",
        "- {name: a, token_sha256: [CANARY-TOKEN]}",
        "- CANARY-TOKEN",
    ):
        path.write_text(f"clients:\n  {wrong}\n")
        with pytest.raises(DocumentError) as raised:
            load_clients(path)
        assert "clients[0]" in str(raised.value)
        assert "CANARY-TOKEN" not in "".join(map(str, raised.value.problems))
