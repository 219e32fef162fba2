"""From a request on the wire to the request that the core decides on: every field checked, nothing guessed.

A fault of the request itself is an ``InvalidRequestError``; a name that the fleet file lacks is a ``RefusedError``
with a reason of the closed list. Messages name fields and limits, never the content of a prompt.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b

from data.fleet.types import Fleet, Model, Tenant
from data.types import RefusalReason
from router.pb.v1 import router_pb2 as pb
from router.policies.settings import Checked, whole
from router.prompts.prefix_scope import MediaSpan
from router.prompts.prompt import GivenHashes, HashedPrompt, Prompt, PromptHasher
from router.serving.class_lengths import ClassLengths
from router.slomax.classify import Classifier, ClassQuestion
from router.types import RouteRequest
from router.version_choice import VersionChoice

UNNAMED_KIND, OTHER_KIND = "unnamed", "other"
API_KINDS = ("chat", "completions", "responses", "messages", "embeddings", UNNAMED_KIND, OTHER_KIND)
"""Kinds of API that are told apart; what a caller makes up counts as ``other``."""
_NAMES = ("request_id", "session_id", "adapter", "cache_scope", "media_digest", "task_type", "api_kind")
"""Fields of callers' own words, whose length is bounded."""
MOST_TOKENS = 2**31 - 1
"""Largest length that the log's columns hold."""


@dataclass(frozen=True, slots=True)
class WireLimits(Checked):
    """What a single request may bring.

    Attributes:
        prompt_tokens: Longest prompt.
        token_ids: Most token ids; a longer prompt comes as block hashes.
        block_hashes: Most block hashes.
        name_bytes: Longest id or name.
        avoid_endpoints: Most endpoints to avoid.
        media: Most images and the like.
    """

    prompt_tokens: int = whole(1, 16_000_000)
    token_ids: int = whole(0, 1_000_000)
    block_hashes: int = whole(0, 250_000)
    name_bytes: int = whole(1, 128)
    avoid_endpoints: int = whole(0, 64)
    media: int = whole(0, 256)


class InvalidRequestError(Exception):
    """The request itself is wrong; the message says which field and what would be right."""


class RefusedError(Exception):
    """The request is well formed, but it names something that the fleet file lacks."""

    def __init__(self, reason: RefusalReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the core decides on it, and what the answer needs beside."""

    request: RouteRequest
    class_rule: str
    cache_salt: str
    named: bool
    """The caller gave an id, so asking the same again is recognised."""
    avoid: tuple[str, ...]
    api_kind: str = UNNAMED_KIND


class WireReader:
    """Reads requests for one fleet.

    Args:
        fleet: Models, classes, tenants and sites.
        origin: Site of requests that name none.
        lengths: Expected output length of each class.
        hasher: Makes block hashes.
        limits: What a request may bring.
        first_number: Numbers of requests without an id count up from here.
    """

    def __init__(
        self,
        fleet: Fleet,
        origin: str,
        lengths: ClassLengths,
        hasher: PromptHasher | None = None,
        limits: WireLimits | None = None,
        first_number: int = 0,
    ) -> None:
        self.limits = limits or WireLimits()
        self._models: dict[str, Model] = {model.key: model for model in fleet.models}
        self._tenants: dict[str, Tenant] = {tenant.name: tenant for tenant in fleet.tenants}
        self._sites = {site.name for site in fleet.sites}
        self._classifier = Classifier(fleet)
        self._origin = origin
        self.lengths = lengths
        self.hasher = hasher or GivenHashes()
        self.next_number = first_number
        self.versions = VersionChoice()
        """Which version answers a request that names none; the plan in force says."""

    def read(self, asked: pb.RouteRequest, bound_tenant: str = "") -> Asked:
        """Check and translate.

        Args:
            asked: The message.
            bound_tenant: Tenant of the verified caller; empty = the one that the request names counts.

        Raises:
            InvalidRequestError: A field is wrong.
            RefusedError: An unknown tenant or model.
        """
        token_ids = asked.token_ids  # each access to such a field copies it
        self._check_names(asked)
        tenant_name = bound_tenant or asked.tenant
        tenant = self._tenants.get(tenant_name)
        if tenant is None and self._tenants:
            raise RefusedError(RefusalReason.UNKNOWN_TENANT, "the fleet file names no such tenant")
        stays = asked.session_id or asked.request_id or str(self.next_number)
        model = self._models.get(self.versions.key(asked.model, stays))
        if model is None:
            raise RefusedError(RefusalReason.UNKNOWN_MODEL, "the fleet file names no such model version")
        if asked.origin and asked.origin not in self._sites:
            raise InvalidRequestError("origin: no such site; leave it empty for the router's own")
        input_tokens = self._input_tokens(asked, len(token_ids))
        budget = asked.output_budget or max(model.context_limit_tokens - input_tokens, 1)
        if budget > MOST_TOKENS:
            raise InvalidRequestError(f"output_budget: {budget} is above {MOST_TOKENS}")
        prompt = self._prompt(asked, token_ids, tenant_name, model, input_tokens)
        hashed = HashedPrompt() if prompt is None else self.hasher.hashed(prompt)
        question = ClassQuestion(tenant_name, input_tokens, budget, asked.task_type, asked.workload_class)
        classified = self._classifier.classify(question)
        kind = classified.workload_class
        request = RouteRequest(
            request_id=self._number(tenant_name, asked.request_id),
            model=model.key,
            tenant=tenant_name,
            workload_class=kind.name,
            origin=asked.origin or self._origin,
            input_tokens=input_tokens,
            output_budget=budget,
            expected_output_tokens=min(self.lengths.mean(kind.name), float(budget)),
            block_hashes=hashed.blocks,
            block_tokens=prompt.block_tokens if prompt is not None else model.engine.block_tokens,
            session_id=asked.session_id,
            slo=kind.slo,
            weight=kind.weight * (1.0 if tenant is None else tenant.weight),
            attempt=asked.attempt,
        )
        return Asked(
            request,
            classified.rule,
            hashed.cache_salt,
            bool(asked.request_id),
            tuple(asked.avoid_endpoints),
            _api_kind(asked.api_kind),
        )

    def renumbered(self, asked: Asked) -> Asked:
        """The same under a number of its own: another request with the same id is still open."""
        self.next_number += 1
        return replace(asked, request=replace(asked.request, request_id=self.next_number))

    def _check_names(self, asked: pb.RouteRequest) -> None:
        most = self.limits.name_bytes
        for field in _NAMES:
            value = getattr(asked, field)
            if value and len(value.encode()) > most:
                raise InvalidRequestError(f"{field}: longer than {most} bytes")
        if asked.attempt > 1000:
            raise InvalidRequestError(f"attempt: {asked.attempt} is above 1000")
        if len(asked.avoid_endpoints) > self.limits.avoid_endpoints:
            raise InvalidRequestError(f"avoid_endpoints: more than {self.limits.avoid_endpoints} names")
        if not 0.0 <= asked.queue_ttl_s < float("inf"):
            raise InvalidRequestError("queue_ttl_s: must be 0 or more, and finite")

    def _input_tokens(self, asked: pb.RouteRequest, size: int) -> int:
        """Length of the prompt, from the field or the ``size`` bytes of token ids; both must agree."""
        if size % 4:
            raise InvalidRequestError(f"token_ids: {size} bytes are no whole number of uint32")
        ids = size // 4
        if ids > self.limits.token_ids:
            raise InvalidRequestError(
                f"token_ids: {ids} tokens are above the limit of {self.limits.token_ids} "
                "(message_too_large: use block_hashes)"
            )
        tokens: int = asked.input_tokens or ids
        if ids and tokens != ids:
            raise InvalidRequestError(f"input_tokens: {tokens}, but token_ids holds {ids}")
        if not 1 <= tokens <= self.limits.prompt_tokens:
            raise InvalidRequestError(f"input_tokens: {tokens} is not within 1 to {self.limits.prompt_tokens}")
        return tokens

    def _prompt(
        self, asked: pb.RouteRequest, token_ids: bytes, tenant: str, model: Model, tokens: int
    ) -> Prompt | None:
        """The part that prefixes are known by; ``None`` if the caller gave nothing of the prompt."""
        block_hashes = asked.block_hashes
        size = len(block_hashes)
        if size % 8:
            raise InvalidRequestError(f"block_hashes: {size} bytes are no whole number of uint64")
        if size and token_ids:
            raise InvalidRequestError("give token_ids or block_hashes, not both")
        if size // 8 > self.limits.block_hashes:
            raise InvalidRequestError(
                f"block_hashes: {size // 8} are above the limit of {self.limits.block_hashes}"
            )
        block_tokens = asked.block_tokens or model.engine.block_tokens
        if size // 8 * block_tokens > tokens:
            raise InvalidRequestError(
                f"block_hashes: {size // 8} full blocks of {block_tokens} tokens are above the prompt's {tokens}"
            )
        if not size and not token_ids:
            return None
        return Prompt(
            model=model.key,
            tenant=tenant,
            adapter=asked.adapter,
            cache_scope=asked.cache_scope,
            media_digest=asked.media_digest,
            media=self._media(asked, tokens),
            token_ids=token_ids,
            block_hashes=block_hashes,
            block_tokens=block_tokens,
            engine_hashes=model.engine.block_hashes == "engine",
        )

    def _media(self, asked: pb.RouteRequest, tokens: int) -> tuple[MediaSpan, ...]:
        if not asked.media:
            return ()
        if len(asked.media) > self.limits.media:
            raise InvalidRequestError(f"media: more than {self.limits.media}")
        if asked.media_digest:
            raise InvalidRequestError("give media or media_digest, not both")
        for number, media in enumerate(asked.media):
            if not media.digest or len(media.digest.encode()) > self.limits.name_bytes:
                raise InvalidRequestError(f"media[{number}].digest: must have 1 to {self.limits.name_bytes} bytes")
            if not media.tokens or media.first_token + media.tokens > tokens:
                raise InvalidRequestError(f"media[{number}]: must lie within the prompt of {tokens} tokens")
        return tuple(MediaSpan(media.digest, media.first_token, media.tokens) for media in asked.media)

    def _number(self, tenant: str, request_id: str) -> int:
        """A 63-bit number that stands for the caller's id in the log; all attempts of a request share it."""
        if not request_id:
            self.next_number += 1
            return self.next_number
        digest = blake2b(f"{tenant}\0{request_id}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") >> 1


def _api_kind(given: str) -> str:
    if not given:
        return UNNAMED_KIND
    return given if given in API_KINDS else OTHER_KIND
