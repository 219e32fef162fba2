"""Between the entry and a site's router: TLS, a token of its own, and no way round either."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from router.client.settings import Identity
from router.entry.site_state import Freshness
from router.pb.v1 import router_pb2 as pb
from router.pb.v1 import router_pb2_grpc as rpc
from router.serving.auth import Authenticator, Client, token_digest
from router.serving.server import RouterServer
from router.serving.server_settings import ListenSettings, Tls

pytestmark = pytest.mark.asyncio
RPCS = ("Route", "RouteBatch", "Report", "Explain", "Watch", "Capacity")


@pytest.fixture(name="with_")
def _with(kit: Any) -> SimpleNamespace:
    return SimpleNamespace(**kit)


@pytest.fixture(name="pair")
def _pair(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate that vouches for itself, for the address of this machine, and its key."""
    certificate, key = tmp_path / "site.pem", tmp_path / "site.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=site"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    return certificate, key


def guarded(with_: Any, pair: tuple[Path, Path], *clients: Client) -> Any:
    def make(live: Any) -> RouterServer:
        return RouterServer(
            live, Authenticator(list(clients)), ListenSettings("127.0.0.1:0", Tls(*pair)), with_.LIMITS
        )

    return make


async def test_the_entry_shows_its_token_over_tls_and_owners_stay_apart(with_: Any, pair: Any) -> None:
    entry = Client("entry", token_sha256=token_digest("entry-token"), rpcs=RPCS)
    other = Client("other", token_sha256=token_digest("other-token"))
    who = Identity("entry-token", ca_file=pair[0])
    async with (
        with_.running_site("B", server=guarded(with_, pair, entry, other)) as b,
        with_.running_entry({"B": b}, identity=who) as world,
    ):
        reply = await world.ask("bank")
        (lease,) = b.live.leases
        assert lease.owner == "entry for anonymous"
        event = with_.finished(reply)
        assert b.live.reports.take(event, "entry", b.live.clock()).value == "unknown_lease"
        assert (await world.tell(event)).accepted == 1


@pytest.mark.parametrize("token", ["", "wrong", "weak"])
async def test_without_the_right_a_site_is_not_used_and_the_status_says_why(
    with_: Any, pair: Any, token: str
) -> None:
    weak = Client("weak", token_sha256=token_digest("weak"), rpcs=("Route",))
    async with (
        with_.running_site("B", server=guarded(with_, pair, weak)) as b,
        with_.running_entry({"B": b}, identity=Identity(token, ca_file=pair[0]), wait=False) as world,
    ):
        state = world.entry.states["B"]
        await with_.until(lambda: "permission_denied" in state.trouble or "unauthenticated" in state.trouble)
        assert state.freshness(world.entry.clock(), world.entry.settings) is Freshness.NEVER_SEEN
        assert (await world.ask("bank")).refusal.http_status == 503
        assert not b.record.decisions


async def test_a_name_that_is_too_long_is_refused_and_never_becomes_an_owner(with_: Any) -> None:
    async with with_.running_site("B") as b:
        async with grpc.aio.insecure_channel(b.server.address) as channel:
            headers = (("tokenfleet-on-behalf-of", "x" * 257),)
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await rpc.RouterStub(channel).Route(with_.question(), timeout=5, metadata=headers)
            assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await rpc.RouterStub(channel).Capacity(pb.CapacityRequest(period_s=0.001)).read()
            assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert not len(b.live.leases)
