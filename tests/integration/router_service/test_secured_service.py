"""Who may call: tokens, certificates, tenants bound on the server side; and where the server may listen."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from data.errors import InputError, SettingError
from router.pb.v1 import router_pb2 as pb
from router.prompts.prefix_scope import ScopeKeys
from router.prompts.prompt_hashes import ScopedHashes
from router.serving.auth import Authenticator, Client, token_digest
from router.serving.server import RouterServer
from router.serving.server_settings import ListenSettings, Tls, check_listen

pytestmark = pytest.mark.asyncio
SHOP, BANK, OPS = "shop-token", "bank-token", "ops-token"


def openssl(*arguments: str, folder: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=30)


@pytest.fixture(name="certificates", scope="session")
def _certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server certificate for localhost and a client certificate, all made for this run."""
    folder = tmp_path_factory.mktemp("certificates")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(
        "req",
        "-x509",
        *key,
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-subj",
        "/CN=test-ca",
        "-days",
        "2",
        folder=folder,
    )
    for name, common in (("server", "localhost"), ("client", "ops.example.org")):
        openssl(
            "req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={common}", folder=folder
        )
        (folder / f"{name}.ext").write_text(f"subjectAltName=DNS:{common}\n")
        openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-out", f"{name}.pem", "-days", "2", "-extfile", f"{name}.ext", folder=folder,
        )  # fmt: skip
    return folder


def authenticator() -> Authenticator:
    return Authenticator(
        (
            Client("shop-proxy", token_sha256=token_digest(SHOP), tenant="shop"),
            Client("bank-proxy", token_sha256=token_digest(BANK), tenant="bank"),
            Client("ops", token_sha256=token_digest(OPS), rpcs=("Explain", "Watch")),
            Client("ops-by-name", certificate_name="ops.example.org"),
        )
    )


def bearer(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


async def code_of(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code()


async def test_without_a_known_token_nothing_is_done(world: Any, serve: Any, asked: Any) -> None:
    async with serve(world.live, authenticator=authenticator()) as served:
        assert await code_of(served.stub.Route(asked())) is grpc.StatusCode.UNAUTHENTICATED
        wrong = served.stub.Route(asked(), metadata=bearer("guess"))
        assert await code_of(wrong) is grpc.StatusCode.UNAUTHENTICATED
        not_allowed = served.stub.Route(asked(), metadata=bearer(OPS))
        assert await code_of(not_allowed) is grpc.StatusCode.PERMISSION_DENIED
        explained = await served.stub.Explain(pb.ExplainRequest(request=asked()), metadata=bearer(OPS))
        assert explained.candidates
        stream = served.stub.RouteStream()
        assert await code_of(stream.read()) is grpc.StatusCode.UNAUTHENTICATED
    assert world.live.core.table.inflight.sum() == 0
    assert not world.sink.decisions


async def test_forged_requests_change_nothing_for_a_tenant_f149(world: Any, serve: Any, asked: Any) -> None:
    async with serve(world.live, authenticator=authenticator()) as served:
        for _ in range(100):
            await code_of(served.stub.Route(asked(tenant="shop"), metadata=bearer("shop-forged")))
        assert world.live.core.table.inflight.sum() == 0
        assert (await served.stub.Route(asked(), metadata=bearer(SHOP))).HasField("placement")


async def test_the_token_names_the_tenant_whatever_the_request_says(
    make_world: Any, serve: Any, asked: Any, endpoint: Any
) -> None:
    world = make_world([endpoint(0, "C")])
    async with serve(world.live, authenticator=authenticator()) as served:
        # The bank may not leave its zone, and it can't speak for the shop, which may.
        reply = await served.stub.Route(asked(tenant="shop"), metadata=bearer(BANK))
        assert reply.refusal.reason == "no_permitted_site"
        assert (await served.stub.Route(asked(tenant="bank"), metadata=bearer(SHOP))).HasField("placement")
    assert [row["tenant"] for row in world.sink.decisions] == ["bank", "shop"]


async def test_a_tenant_never_meets_anothers_prefix_f145_f146(make_world: Any, serve: Any, asked: Any) -> None:
    world = make_world(hasher=ScopedHashes(ScopeKeys(b"0123456789abcdef")))
    prompt = {"input_tokens": 0, "token_ids": bytes(range(64)) * 40}
    async with serve(world.live, authenticator=authenticator()) as served:
        first = await served.stub.Route(asked(**prompt), metadata=bearer(SHOP))
        other = await served.stub.Route(asked(**prompt, cache_scope="shop"), metadata=bearer(BANK))
        again = await served.stub.Route(asked(**prompt), metadata=bearer(SHOP))
        narrowed = await served.stub.Route(asked(**prompt, cache_scope="private"), metadata=bearer(SHOP))
    assert first.placement.predicted_hit_tokens == 0
    assert other.placement.predicted_hit_tokens == 0
    assert again.placement.predicted_hit_tokens == 640 - 1
    assert narrowed.placement.predicted_hit_tokens == 0
    assert first.placement.cache_salt == again.placement.cache_salt
    assert len({reply.placement.cache_salt for reply in (first, other, narrowed)}) == 3


async def test_a_lease_can_only_be_ended_by_its_client(world: Any, serve: Any, asked: Any) -> None:
    async with serve(world.live, authenticator=authenticator()) as served:
        lease = (await served.stub.Route(asked(), metadata=bearer(SHOP))).placement.lease_id
        event = pb.ReportEvent(lease_id=lease, cancelled=pb.Cancelled())
        foreign = await served.stub.Report(iter([event]), metadata=bearer(BANK))
        assert (foreign.accepted, foreign.unknown_lease) == (0, 1)
        own = await served.stub.Report(iter([event]), metadata=bearer(SHOP))
        assert own.accepted == 1


async def test_tls_and_mutual_tls(world: Any, serve: Any, asked: Any, certificates: Path) -> None:
    ca, key, own = ((certificates / name).read_bytes() for name in ("ca.pem", "client.key", "client.pem"))
    tls = Tls(certificates / "server.pem", certificates / "server.key")
    async with serve(world.live, tls=tls, credentials=grpc.ssl_channel_credentials(ca)) as served:
        assert (await served.stub.Route(asked())).HasField("placement")
    mutual = Tls(tls.certificate, tls.key, certificates / "ca.pem")
    shows = grpc.ssl_channel_credentials(ca, key, own)
    async with serve(world.live, tls=mutual, credentials=shows, authenticator=authenticator()) as served:
        assert (await served.stub.Route(asked())).HasField("placement")
    hides = grpc.ssl_channel_credentials(ca)
    async with serve(world.live, tls=mutual, credentials=hides, authenticator=authenticator()) as served:
        assert await code_of(served.stub.Route(asked(), timeout=5)) is grpc.StatusCode.UNAVAILABLE


async def test_a_certificate_that_is_not_there_is_told(world: Any, tmp_path: Path) -> None:
    tls = Tls(tmp_path / "no.pem", tmp_path / "no.key")
    server = RouterServer(world.live, Authenticator(), ListenSettings("127.0.0.1:0", tls))
    with pytest.raises(InputError, match=r"no\.key"):
        await server.start()
    await server.stop(0.0)


@pytest.mark.parametrize(
    ("address", "tls", "clients", "fine"),
    [
        ("127.0.0.1:1", False, False, True),
        ("[::1]:1", False, False, True),
        ("localhost:1", False, False, True),
        ("unix:/tmp/x", False, False, True),
        ("0.0.0.0:1", False, False, False),
        ("0.0.0.0:1", False, True, False),
        ("0.0.0.0:1", True, False, False),
        ("0.0.0.0:1", True, True, True),
        ("[::]:1", False, True, False),
        ("router.example:1", False, True, False),
    ],
)
async def test_beyond_this_machine_only_protected(address: str, tls: bool, clients: bool, fine: bool) -> None:
    files = Tls(Path("c"), Path("k")) if tls else None
    check_listen(ListenSettings(address, files, allow_insecure=True), clients)
    check: Callable[[], None] = lambda: check_listen(ListenSettings(address, files), clients)  # noqa: E731
    if fine:
        check()
    else:
        with pytest.raises(SettingError, match="beyond this machine"):
            check()


@pytest.mark.parametrize("address", ["nohost", "127.0.0.1", ":1", "127.0.0.1:x", "127.0.0.1:70000", "::1:5"])
async def test_malformed_addresses_are_named(address: str) -> None:
    with pytest.raises(SettingError, match="not an address"):
        check_listen(ListenSettings(address), False)


async def test_an_address_in_use_is_told(world: Any, serve: Any) -> None:
    async with serve(world.live) as served:
        second = RouterServer(world.live, Authenticator(), ListenSettings(served.server.address))
        with pytest.raises(SettingError, match="cannot listen"):
            await second.start()
        await second.stop(0.0)
