"""Do the router's prefixes agree with the engine's own? Checked per endpoint and kind of request, never assumed.

Hashes are chained: one token that differs at the start means no match at all, while every health signal stays
green. Two checks: token sequences against those the engine published, and, where the engine's algorithm can be
rebuilt (vLLM's ``sha256_cbor``), its block hashes bit by bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from router.kv_events.decode import hash_of
from router.kv_events.messages import Stored

CHAIN_SEED = "vllm-none-hash"
"""What vLLM hashes for the block before the first one, unless ``PYTHONHASHSEED`` is set: then that text."""


class Parity(Enum):
    """What a check found."""

    UNKNOWN = "unknown"
    """Nothing was checked yet."""
    AGREES = "agrees"
    TOKENS = "tokens"
    """The token sequences differ: another template, tokenizer or version."""
    BLOCK_SIZE = "block_size"
    SALT = "salt"
    """The hashes agree only without, or with another, cache salt."""
    ALGORITHM = "algorithm"
    """The hashes agree under no known reading: another algorithm or another seed."""


@dataclass(frozen=True, slots=True)
class ParityResult:
    """Outcome of one check; ``position`` is the first token (or block) that differs, -1 if none does."""

    parity: Parity
    position: int = -1


def compare_tokens(ours: Sequence[int], engines: Sequence[int]) -> ParityResult:
    """Compare the router's tokens of a prompt with the engine's; a common start must cover the shorter one."""
    for position, (mine, theirs) in enumerate(zip(ours, engines, strict=False)):
        if mine != theirs:
            return ParityResult(Parity.TOKENS, position)
    if not ours or not engines:
        return ParityResult(Parity.UNKNOWN)
    return ParityResult(Parity.AGREES)


def vllm_chain(
    tokens: Sequence[int], block_tokens: int, salt: str | None = None, seed: str = CHAIN_SEED
) -> list[int]:
    """Block hashes as vLLM's ``sha256_cbor`` publishes them: the low 64 bits of each digest.

    ``H_i = SHA256(CBOR([H_{i−1}, tokens of block i, extra]))`` with ``extra`` = ``[["cache_salt", salt]]`` for the
    first block of a salted request and null otherwise; ``H_0 = SHA256(CBOR(seed))``.
    """
    digest = hashlib.sha256(cbor(seed)).digest()
    out: list[int] = []
    for start in range(0, len(tokens) - block_tokens + 1, block_tokens):
        extra = [["cache_salt", salt]] if salt is not None and not start else None
        digest = hashlib.sha256(cbor([digest, list(tokens[start : start + block_tokens]), extra])).digest()
        out.append(int.from_bytes(digest[-8:], "big"))
    return out


def check_stored(
    event: Stored, prompt: Sequence[int], block_tokens: int, salt: str | None = None, seed: str = CHAIN_SEED
) -> ParityResult:
    """Compare the engine's event about the first blocks of a known prompt with what the router expects.

    Args:
        event: A stored event without a parent, tokens included.
        prompt: The router's tokens of that prompt.
        block_tokens: The router's block size for the endpoint.
        salt: Cache salt sent with the request.
        seed: Text hashed for the block before the first.
    """
    if event.block_size not in (0, block_tokens):
        return ParityResult(Parity.BLOCK_SIZE, 0)
    tokens = getattr(event, "token_ids", None)
    if event.parent_block_hash is not None or not isinstance(tokens, list) or not event.block_hashes:
        return ParityResult(Parity.UNKNOWN)
    found = compare_tokens(prompt, tokens)
    if found.parity is not Parity.AGREES:
        return found
    theirs = [hash_of(block) for block in event.block_hashes]
    if vllm_chain(tokens, block_tokens, salt, seed) == theirs:
        return found
    published = _published_salt(event)
    for other in {None, published} - {salt}:
        if vllm_chain(tokens, block_tokens, other, seed) == theirs:
            return ParityResult(Parity.SALT, 0)
    return ParityResult(Parity.ALGORITHM, 0)


class ParityBook:
    """Latest result for each (endpoint row, kind of request), and whether prefix credit is due there.

    Args:
        on_change: Told of a row, a kind of request and the result that turned its credit on or off.
    """

    def __init__(self, on_change: Callable[[int, str, ParityResult], None] = lambda *_: None) -> None:
        self._on_change = on_change
        self._results: dict[tuple[int, str], ParityResult] = {}
        self.mismatches: dict[str, int] = {}
        """Failed checks by kind of request."""

    def record(self, row: int, api: str, result: ParityResult) -> bool:
        """Keep a result; whether it turned credit on or off. One that found nothing out changes nothing."""
        if result.parity is Parity.UNKNOWN:
            return False
        before = self.credited(row, api)
        self._results[row, api] = result
        after = self.credited(row, api)
        if not after:
            self.mismatches[api] = self.mismatches.get(api, 0) + 1
        if before != after:
            self._on_change(row, api, result)
        return before != after

    def uncredited(self) -> list[tuple[int, str]]:
        """Rows and kinds of request without credit."""
        return [key for key in list(self._results) if not self.credited(*key)]

    def result(self, row: int, api: str) -> ParityResult:
        """Latest result."""
        return self._results.get((row, api), ParityResult(Parity.UNKNOWN))

    def credited(self, row: int, api: str) -> bool:
        """Whether a predicted hit from events counts: not after a failed check."""
        return self.result(row, api).parity in (Parity.UNKNOWN, Parity.AGREES)

    def mode(self, row: int, api: str) -> str:
        """``events``, or ``approximate`` after a failed check: own dispatches need no agreement on hashes."""
        return "events" if self.credited(row, api) else "approximate"

    def forget(self, row: int) -> None:
        """The endpoint left or came back."""
        self._results = {key: result for key, result in self._results.items() if key[0] != row}


def cbor(value: object) -> bytes:
    """Canonical CBOR (RFC 8949, section 4.2) of null, whole numbers ≥ 0, text, bytes and lists of them.

    Raises:
        TypeError: For anything else.
    """
    if value is None:
        return b"\xf6"
    if isinstance(value, bytes):
        return _head(2, len(value)) + value
    if isinstance(value, str):
        raw = value.encode()
        return _head(3, len(raw)) + raw
    if isinstance(value, list):
        return _head(4, len(value)) + b"".join([cbor(item) for item in value])
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return _head(0, value)
    raise TypeError(f"no CBOR form for {type(value).__name__}")


def _head(kind: int, size: int) -> bytes:
    if size < 24:
        return bytes([kind << 5 | size])
    for code, width in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if size < 1 << 8 * width:
            return bytes([kind << 5 | code]) + size.to_bytes(width, "big")
    raise TypeError("number above 64 bits")


def _published_salt(event: Stored) -> str | None:
    first = event.extra_keys[0] if event.extra_keys else None
    if not isinstance(first, list | tuple):
        return None
    texts = [key for key in first if isinstance(key, str) and key != event.lora_name]
    return texts[-1] if texts else None
