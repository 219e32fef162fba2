"""Canaries through a real process: nothing of a prompt or a credential comes out (F145, F146, F149, F150)."""

from __future__ import annotations

import json
import struct
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from benchmarks.serve_process import MAIN, ServeProcess
from data.fleet.reference import reference_path
from data.log.reader import LogReader
from router.pb.v1 import router_pb2 as pb
from router.pb.v1 import router_pb2_grpc as rpc
from router.serving.auth import token_digest

TOKEN_IDS = (3141592653, 2718281828)
BLOCK_HASHES = (0x7A6F6E6B65795F31, 0x7A6F6E6B65795F32)
SHOP, FORGED, HEADER = "CANARY-token-of-the-shop", "CANARY-forged-token", "CANARY-header"
TEXTS = ("CANARY-scope", "CANARY-media", "CANARY-session", "CANARY-request")
TRACED = """
import os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=open({path!r}, "w"))))
trace.set_tracer_provider(provider)
"""


@dataclass
class Heard:
    """Everything that came out of the router and is not the caller's own answer."""

    texts: dict[str, str] = field(default_factory=dict)
    raw: dict[str, bytes] = field(default_factory=dict)
    replies: list[pb.RouteReply] = field(default_factory=list)
    counted_before_forgery: str = ""
    counted_after_forgery: str = ""


def canaries() -> Iterator[str]:
    """Every form in which a canary might be written out."""
    yield from (SHOP, FORGED, HEADER, *TEXTS)
    for number in TOKEN_IDS:
        yield str(number)
        yield f"{number:x}"
    for number in BLOCK_HASHES:
        yield str(number)
        yield f"{number:x}"
        yield str(number - 2**64 if number >= 2**63 else number)


def metadata(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"), ("x-trace", HEADER))


def question(**given: Any) -> pb.RouteRequest:
    values: dict[str, Any] = {
        "model": "assistant@v1",
        "output_budget": 50,
        "cache_scope": TEXTS[0],
        "media_digest": TEXTS[1],
        "session_id": TEXTS[2],
        "token_ids": struct.pack("<2I", *TOKEN_IDS) * 32,
    }
    return pb.RouteRequest(**{**values, **given})


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def own_counters(page: str) -> str:
    """Lines that tell of requests, tenants or leases; not those of time, memory or of calls that were refused."""
    names = ("decisions_total", "output_tokens", "attempts_ended", "leases", "refusals", "inflight", "hit_tokens")
    return "\n".join(line for line in page.splitlines() if any(name in line for name in names))


def error_of(call: Any) -> str:
    with pytest.raises(grpc.RpcError) as raised:
        call()
    return f"{raised.value.code()} {raised.value.details()} {raised.value.trailing_metadata()}"  # type: ignore[attr-defined]


def talk(stub: rpc.RouterStub, router: ServeProcess, heard: Heard) -> None:
    """Normal, malformed, refused, cancelled and forged requests."""
    mine = metadata(SHOP)
    for number in range(3):
        reply = stub.Route(question(request_id=f"{TEXTS[3]}{number}"), metadata=mine)
        heard.replies.append(reply)
        lease = reply.placement.lease_id
        events = [
            pb.ReportEvent(lease_id=lease, first_token=pb.FirstToken(ttft_s=0.1)),
            pb.ReportEvent(lease_id=lease, finished=pb.Finished(output_tokens=5, e2e_s=0.2, cached_tokens=0)),
        ]
        assert stub.Report(iter(events[: number + 1]), metadata=mine).accepted
    hashed = question(token_ids=b"", input_tokens=64, block_hashes=struct.pack("<2Q", *BLOCK_HASHES))
    heard.replies.append(stub.Route(hashed, metadata=mine))
    explained = stub.Explain(pb.ExplainRequest(request=question()), metadata=mine)
    heard.texts["explain"] = str(explained)
    heard.raw["explain"] = explained.SerializeToString()
    errors = [
        error_of(lambda: stub.Route(question(token_ids=struct.pack("<I", TOKEN_IDS[0]) + b"x"), metadata=mine)),
        error_of(lambda: stub.Route(question(input_tokens=1), metadata=mine)),
        error_of(lambda: stub.Route(question(block_hashes=b"123", token_ids=b""), metadata=mine)),
        error_of(lambda: stub.Route(question(cache_scope=TEXTS[0] * 99), metadata=mine)),
        error_of(lambda: stub.Explain(pb.ExplainRequest(request=question(origin=TEXTS[3])), metadata=mine)),
    ]
    heard.texts["refusal"] = str(stub.Route(question(model=TEXTS[3]), metadata=mine))
    heard.counted_before_forgery = own_counters(get(f"{router.page}/metrics"))
    forged = question(tenant="shop", input_tokens=64)
    errors += [error_of(lambda: stub.Route(forged, metadata=metadata(FORGED))) for _ in range(200)]
    errors.append(error_of(lambda: stub.Report(iter([pb.ReportEvent(lease_id=1)]), metadata=metadata(FORGED))))
    heard.counted_after_forgery = own_counters(get(f"{router.page}/metrics"))
    heard.replies.append(stub.Route(question(), metadata=mine))
    heard.texts["errors"] = "\n".join(errors)


@pytest.fixture(name="files", scope="module")
def _files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("router")
    names = ("fleet.yaml", "clients.yaml", "router.yaml", "secret", "spans.json", "log")
    files = {name: folder / name for name in names}
    document = yaml.safe_load(reference_path("one-pool").read_text())
    document["tenants"] = [{"name": "shop"}, {"name": "bank"}]
    files["fleet.yaml"].write_text(yaml.safe_dump(document))
    clients = [{"name": "shop-proxy", "token_sha256": token_digest(SHOP), "tenant": "shop"}]
    files["clients.yaml"].write_text(yaml.safe_dump({"clients": clients}))
    files["router.yaml"].write_text("server: {drain_s: 0.2}\nspan_share: 1.0\n")
    files["secret"].write_text("CANARY-secret-of-the-scopes")
    return files


@pytest.fixture(name="heard", scope="module")
def _heard(files: dict[str, Path]) -> Heard:
    heard = Heard()
    router = ServeProcess(
        *("--fleet", str(files["fleet.yaml"]), "--clients", str(files["clients.yaml"])),
        *("--settings", str(files["router.yaml"]), "--scope-secret", str(files["secret"])),
        *("--log", str(files["log"]), "--log-format", "json", "--metrics-listen", "127.0.0.1:0"),
        code=TRACED.format(path=str(files["spans.json"])) + MAIN,
    )
    with router:
        with grpc.insecure_channel(router.address) as channel:
            talk(rpc.RouterStub(channel), router, heard)
        heard.texts["metrics"] = get(f"{router.page}/metrics")
        heard.texts["status"] = get(f"{router.page}/status")
    assert router.code == 0, router.errors
    heard.texts["stderr"] = router.errors
    heard.texts["spans"] = files["spans.json"].read_text()
    heard.texts["decision log"] = str(LogReader(files["log"]).window(0.0, 1e12).to_pylist())
    heard.raw["log files"] = b"".join(path.read_bytes() for path in files["log"].rglob("*.parquet"))
    return heard


def test_the_router_did_tell_of_its_work(heard: Heard) -> None:
    """Without this the next test would pass on silence."""
    assert [reply.HasField("placement") for reply in heard.replies] == [True] * 5
    assert "tokenfleet.route" in heard.texts["spans"]
    assert '"shop"' in heard.texts["spans"]
    assert "'tenant': 'shop'" in heard.texts["decision log"]
    assert "chosen: true" in heard.texts["explain"]
    assert "tokenfleet_router_decisions_total" in heard.texts["metrics"]
    assert len(heard.texts["errors"].splitlines()) == 206
    assert all(json.loads(line)["message"] for line in heard.texts["stderr"].splitlines())


def test_no_canary_occurs_in_any_output_f150(heard: Heard) -> None:
    """F150: no token id, block hash, scope, digest, session, bearer token or header, in whatever form."""
    found = [
        (where, canary)
        for canary in (*canaries(), "CANARY-secret-of-the-scopes")
        for where, text in heard.texts.items()
        if canary in text
    ]
    assert found == []
    patterns = [struct.pack("<I", number) for number in TOKEN_IDS]
    patterns += [struct.pack("<Q", number) for number in BLOCK_HASHES]
    patterns += [canary.encode() for canary in canaries()]
    assert [(where, p) for where, raw in heard.raw.items() for p in patterns if p in raw] == []


def test_forged_credentials_change_no_counter_of_a_tenant_f149(heard: Heard) -> None:
    """F149: 200 forged requests in the shop's name; its own next request is placed, and nothing was counted."""
    assert heard.counted_before_forgery == heard.counted_after_forgery
    assert "tokenfleet_router_leases_open 2.0" in heard.counted_before_forgery
    assert heard.replies[-1].HasField("placement")
    assert "UNAUTHENTICATED" in heard.texts["errors"]


def test_a_tenant_hits_its_own_prefix_and_learns_nothing_of_others_f145_f146(heard: Heard) -> None:
    """F145, F146: the same prompt again is a hit for its own tenant; no label of the metrics tells whose hits."""
    assert heard.replies[0].placement.predicted_hit_tokens == 0
    assert heard.replies[1].placement.predicted_hit_tokens == 63
    for line in heard.texts["metrics"].splitlines():
        if "hit" in line:
            assert "tenant" not in line
