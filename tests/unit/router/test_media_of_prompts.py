"""Images in prompts: hashed where they lie, as an engine's events tell of them, and told apart (F029)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from data.fleet.reference import reference_fleet
from router.client import Media, Query
from router.client.query import to_wire
from router.kv_events.apply import FeedSettings, RowEvents
from router.kv_events.decode import Batch
from router.kv_events.messages import MapStored
from router.pb.v1 import router_pb2 as pb
from router.prefix.index import PrefixIndex
from router.prompts.prefix_scope import MediaSpan, ScopeKeys
from router.prompts.prompt import Prompt
from router.prompts.prompt_hashes import ScopedHashes
from router.serving.class_lengths import ClassLengths
from router.serving.wire_request import InvalidRequestError, WireLimits, WireReader

TOKENS = list(range(100, 164))
"""Four blocks; an image may lie in the second and third."""
IMAGE = MediaSpan("image-a", 20, 20)
HASHER = ScopedHashes(ScopeKeys(b"0123456789abcdef"))


def blocks(**given: Any) -> tuple[int, ...]:
    values: dict[str, Any] = {
        "model": "m@1",
        "tenant": "",
        "adapter": "",
        "cache_scope": "",
        "media_digest": "",
        "token_ids": np.array(TOKENS, dtype=np.uint32).tobytes(),
        "block_hashes": b"",
        "block_tokens": 16,
    }
    return HASHER.hashed(Prompt(**{**values, **given})).blocks


def test_blocks_before_an_image_are_shared_and_those_from_it_on_are_not() -> None:
    plain, first, second = blocks(), blocks(media=(IMAGE,)), blocks(media=(MediaSpan("image-b", 20, 20),))
    assert plain[0] == first[0] == second[0]
    assert len({plain[1], first[1], second[1]}) == 3
    assert len({plain[3], first[3], second[3]}) == 3


def test_an_engines_events_about_an_image_match_the_prompt_that_holds_it_f029() -> None:
    """F029: the engine publishes the image with each block in which it lies; all four blocks are hit."""
    index = PrefixIndex(1)
    events = RowEvents(index, 0, FeedSettings("m@1", 16))
    extra = [None, [["image-a", 4]], [["image-a", -12]], None]
    events.apply(Batch(1.0, 0, [MapStored([1, 2, 3, 4], None, TOKENS, 16, extra_keys=extra)]), 1.0)
    assert index.matched_blocks(blocks(media=(IMAGE,))).tolist() == [4]
    assert index.matched_blocks(blocks()).tolist() == [1]
    # A digest without a place meets only its like.
    assert index.matched_blocks(blocks(media_digest="image-a")).tolist() == [0]


def test_hashes_of_the_caller_are_parted_by_their_images() -> None:
    own = {"token_ids": b"", "block_hashes": bytes(range(16))}
    assert not set(blocks(**own)) & set(blocks(**own, media=(IMAGE,)))


def test_a_query_carries_its_images() -> None:
    wire = to_wire(Query("m@1", token_ids=TOKENS, media=(Media("image-a", 20, 20),)))
    assert [(m.digest, m.first_token, m.tokens) for m in wire.media] == [("image-a", 20, 20)]


@pytest.mark.parametrize(("first", "tokens"), [(0, 0), (60, 5), (0, 65)])
def test_an_image_must_lie_within_the_prompt(first: int, tokens: int) -> None:

    fleet = reference_fleet("one-pool")
    reader = WireReader(fleet, "main", ClassLengths(fleet.classes), HASHER, WireLimits(media=1))
    asked = pb.RouteRequest(model="assistant@v1", tenant="default", input_tokens=64)
    asked.token_ids = np.array(TOKENS, dtype=np.uint32).tobytes()
    asked.media.add(digest="image-a", first_token=first, tokens=tokens)
    with pytest.raises(InvalidRequestError, match=r"media\[0\]: must lie within"):
        reader.read(asked)
    asked.media.add(digest="image-b", first_token=0, tokens=1)
    with pytest.raises(InvalidRequestError, match="media: more than 1"):
        reader.read(asked)
    del asked.media[:]
    asked.media.add(digest="image-a", first_token=0, tokens=64)
    assert reader.read(asked).request.block_hashes
    asked.media_digest = "d"
    with pytest.raises(InvalidRequestError, match="not both"):
        reader.read(asked)
