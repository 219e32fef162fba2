"""One list of checks that every engine adapter passes, on invented pages under the engines' real names."""

from __future__ import annotations

from typing import get_args

import pytest

from benchmarks.fakes.pages import PAGES, Load
from data.fleet.types import EngineKind
from router.engines.aliases import (
    BLOCK_TOKENS,
    COUNTERS,
    KV_BLOCKS,
    KV_USE,
    QUANTITIES,
    RUNNING,
    WAITING,
)
from router.engines.registry import ENGINES, page_reader

EACH = pytest.mark.parametrize("kind", list(ENGINES))
LOAD = Load(running=41, waiting=7, kv_use=0.75, prompt_tokens=9000, generation_tokens=3000, cache_hits=500)


def page(kind: str, load: Load = LOAD) -> bytes:
    return PAGES[kind](load, 4)


def test_fleet_files_may_name_exactly_the_engines_that_have_an_adapter() -> None:
    assert set(get_args(EngineKind)) == set(ENGINES) == set(PAGES)


@EACH
def test_a_page_tells_the_load(kind: str) -> None:
    reading = page_reader(kind).read(page(kind))
    assert (reading.get(RUNNING), reading.get(WAITING), reading.get(KV_USE)) == (41, 7, 0.75)
    assert reading.missing == ()
    assert reading.bad_samples == 0


@EACH
def test_the_size_of_the_cache_is_told(kind: str) -> None:
    reading = page_reader(kind).read(page(kind))
    tokens = reading.get("kv_tokens")
    if tokens != tokens:
        tokens = reading.get(KV_BLOCKS) * reading.get(BLOCK_TOKENS)
    assert tokens == 1024 * 16


@EACH
def test_what_is_required_is_enough_to_route_and_always_the_same_three(kind: str) -> None:
    assert set(ENGINES[kind].required) == {RUNNING, WAITING, KV_USE}
    assert {row.quantity for row in ENGINES[kind].rows} <= set(QUANTITIES)


@EACH
@pytest.mark.parametrize("content", [b"", b"\n\n", b"<html>busy</html>", b"{", b"[]", b"null", b"\xff\xfe\x00"])
def test_a_page_without_samples_is_missing_never_zero(kind: str, content: bytes) -> None:
    """F015: absent is missing."""
    reading = page_reader(kind).read(content)
    assert set(reading.missing) == {RUNNING, WAITING, KV_USE}
    assert reading.get(RUNNING) != reading.get(RUNNING)
    assert not reading.values


@EACH
def test_zero_is_a_value(kind: str) -> None:
    reading = page_reader(kind).read(page(kind, Load()))
    assert (reading.get(RUNNING), reading.get(WAITING), reading.get(KV_USE)) == (0, 0, 0)
    assert reading.missing == ()


@EACH
def test_an_impossible_share_is_a_bad_sample(kind: str) -> None:
    """F020: it drops that sample only."""
    reading = page_reader(kind).read(page(kind, Load(running=3, waiting=1, kv_use=97.0)))
    assert KV_USE in reading.missing
    assert reading.bad_samples >= 1
    assert reading.get(RUNNING) == 3


@EACH
def test_reading_again_follows_the_numbers(kind: str) -> None:
    reader = page_reader(kind)
    for running in range(40):
        assert reader.read(page(kind, Load(running=running))).get(RUNNING) == running


@EACH
def test_counters_rise_and_are_told_where_the_engine_has_them(kind: str) -> None:
    reading = page_reader(kind).read(page(kind))
    told = {row.quantity for row in ENGINES[kind].rows} & set(COUNTERS)
    on_page = {quantity for quantity in COUNTERS if reading.get(quantity) == reading.get(quantity)}
    assert on_page <= told
    if kind in ("vllm", "sglang", "trtllm"):
        assert on_page >= {"prompt_tokens", "generation_tokens"}
