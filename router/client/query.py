"""What a client asks and what it is told, as plain values, and their form on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from router.pb.v1 import router_pb2 as pb

Tokens = Sequence[int] | npt.NDArray[np.uint32]
Hashes = Sequence[int] | npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Media:
    """An image, sound or video in a prompt: its identifier as the engine names it, and where its tokens lie."""

    digest: str
    first_token: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Query:
    """One request that needs a place. Give ``token_ids`` or ``block_hashes``, or only ``input_tokens``.

    Attributes:
        model: ``name@version``.
        input_tokens: Prompt length; 0 = as many as ``token_ids``.
        output_budget: Bound on the output; 0 = the rest of the context.
        token_ids: The prompt; it is hashed in the router and kept nowhere.
        block_hashes: Chained 64-bit hashes of its full blocks of ``block_tokens`` tokens.
        queue_ttl_s: Longest wait in the router's queue; 0 = the class's own limit.
        media: Images and the like in the prompt, with their places.
        api_kind: Kind of API that the prompt came by, one of ``router.serving.wire_request.API_KINDS``.
    """

    model: str
    input_tokens: int = 0
    output_budget: int = 0
    tenant: str = ""
    workload_class: str = ""
    task_type: str = ""
    origin: str = ""
    token_ids: Tokens = ()
    block_hashes: Hashes = ()
    block_tokens: int = 0
    session_id: str = ""
    adapter: str = ""
    cache_scope: str = ""
    media_digest: str = ""
    request_id: str = ""
    attempt: int = 0
    avoid_endpoints: tuple[str, ...] = ()
    queue_ttl_s: float = 0.0
    api_kind: str = ""
    media: tuple[Media, ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """Where to send the request. Times in seconds; ``None`` = not predicted.

    Attributes:
        lease_id: Names this dispatch in reports.
        cache_salt: To be given to the engine as its cache salt; empty = none.
        degraded: What the decision had to do without.
    """

    endpoint_id: str
    address: str
    site: str
    lease_id: int
    lease_s: float
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    tpot_p50_s: float | None
    tpot_p90_s: float | None
    predicted_hit_tokens: int
    cache_salt: str
    workload_class: str
    model_version: str
    plan_id: str
    degraded: tuple[str, ...] = ()
    queued_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no place. ``reason`` is one of the closed list; ``retry_after_s`` ``None`` = do not retry."""

    reason: str
    http_status: int
    retry_after_s: float | None
    message: str
    workload_class: str = ""
    degraded: tuple[str, ...] = field(default_factory=tuple)


def to_wire(query: Query) -> pb.RouteRequest:
    """The message for a query.

    Raises:
        ValueError: A number does not fit its field, such as a token id beyond 32 bits.
    """
    tokens = _packed(query.token_ids, "<u4", "token_ids")
    return pb.RouteRequest(
        request_id=query.request_id,
        model=query.model,
        tenant=query.tenant,
        workload_class=query.workload_class,
        task_type=query.task_type,
        origin=query.origin,
        input_tokens=query.input_tokens or len(query.token_ids),
        output_budget=query.output_budget,
        token_ids=tokens,
        block_hashes=_packed(query.block_hashes, "<u8", "block_hashes"),
        block_tokens=query.block_tokens,
        session_id=query.session_id,
        adapter=query.adapter,
        cache_scope=query.cache_scope,
        media_digest=query.media_digest,
        attempt=query.attempt,
        avoid_endpoints=query.avoid_endpoints,
        queue_ttl_s=query.queue_ttl_s,
        api_kind=query.api_kind,
        media=[pb.Media(digest=m.digest, first_token=m.first_token, tokens=m.tokens) for m in query.media],
    )


def from_wire(reply: pb.RouteReply) -> Placement | Refusal:
    """The value of a reply."""
    if reply.WhichOneof("result") != "placement":
        refusal = reply.refusal
        return Refusal(
            reason=refusal.reason,
            http_status=refusal.http_status,
            retry_after_s=refusal.retry_after_s if refusal.HasField("retry_after_s") else None,
            message=refusal.message,
            workload_class=reply.workload_class,
            degraded=tuple(reply.degraded),
        )
    placed = reply.placement
    return Placement(
        endpoint_id=placed.endpoint_id,
        address=placed.address,
        site=placed.site,
        lease_id=placed.lease_id,
        lease_s=placed.lease_s,
        ttft_p50_s=placed.ttft.p50_s if placed.HasField("ttft") else None,
        ttft_p90_s=placed.ttft.p90_s if placed.ttft.HasField("p90_s") else None,
        tpot_p50_s=placed.tpot.p50_s if placed.HasField("tpot") else None,
        tpot_p90_s=placed.tpot.p90_s if placed.tpot.HasField("p90_s") else None,
        predicted_hit_tokens=placed.predicted_hit_tokens,
        cache_salt=placed.cache_salt,
        workload_class=reply.workload_class,
        model_version=reply.model_version,
        plan_id=reply.plan_id,
        degraded=tuple(reply.degraded),
        queued_s=reply.queued_s,
    )


def _packed(values: Tokens | Hashes, kind: str, name: str) -> bytes:
    if not len(values):
        return b""
    try:
        return np.asarray(values).astype(kind, casting="same_kind").tobytes()
    except TypeError:
        pass
    try:
        return np.array([int(value) for value in values], dtype=kind).tobytes()
    except OverflowError as error:
        raise ValueError(f"{name}: a value does not fit {kind[1:]}: {error}") from error
