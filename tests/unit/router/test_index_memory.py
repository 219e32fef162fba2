"""The bound of the prefix index's memory for a whole list of endpoints (F022)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from data.catalog.load import load_catalog
from data.errors import SettingError
from data.fleet.reference import reference_fleet
from data.fleet.types import Fleet
from router.build import endpoint_specs
from router.feeds.index_memory import check_index_memory
from router.serving.fleet_rows import LiveEndpoint


def endpoints(fleet: Fleet, **given: bool) -> list[LiveEndpoint]:
    specs = endpoint_specs(fleet, load_catalog(), fleet.placement)
    return [LiveEndpoint(spec, **given) for spec in specs]


def with_blocks(fleet: Fleet, tokens: int, **engine: str) -> Fleet:
    models = tuple(replace(m, engine=replace(m.engine, block_tokens=tokens, **engine)) for m in fleet.models)
    return replace(fleet, models=models)


def test_a_fleet_that_could_need_too_much_is_refused_with_a_block_size_that_fits_f022() -> None:
    """F022: blocks of one token: refused above the limit; with the block size that the message names it starts."""
    small = with_blocks(reference_fleet("four-sites"), 1)
    with pytest.raises(SettingError, match="block_tokens 16 or more") as raised:
        check_index_memory(endpoints(small), small, 64 << 20)
    assert "MiB" in str(raised.value)
    fitting = with_blocks(small, 16)
    bound, warnings = check_index_memory(endpoints(fitting), fitting, 64 << 20)
    assert bound is not None
    assert 0 < bound.total_bytes <= 64 << 20
    assert warnings == ()


def test_small_blocks_that_fit_are_warned_of_f022() -> None:
    fleet = with_blocks(reference_fleet("one-pool"), 4)
    _, warnings = check_index_memory(endpoints(fleet), fleet, 1 << 40)
    assert "4 tokens" in warnings[0]


def test_the_bound_covers_the_costliest_source_of_what_is_held() -> None:
    fleet = reference_fleet("one-pool")
    guessed, _ = check_index_memory(endpoints(fleet), fleet, 1 << 40)
    told, _ = check_index_memory(endpoints(fleet, kv_events=True), fleet, 1 << 40)
    both, _ = check_index_memory([*endpoints(fleet)[:4], *endpoints(fleet, kv_events=True)[4:]], fleet, 1 << 40)
    engines = with_blocks(fleet, 16, block_hashes="engine")
    plain, _ = check_index_memory(endpoints(engines, kv_events=True), engines, 1 << 40)
    assert guessed is not None
    assert told is not None
    assert both is not None
    assert plain is not None
    assert both.total_bytes == max(guessed.total_bytes, told.total_bytes)
    assert plain.total_bytes == plain.table_bytes < told.total_bytes


def test_a_list_without_endpoints_needs_nothing() -> None:
    assert check_index_memory([], reference_fleet("one-pool"), 1 << 16) == (None, ())
