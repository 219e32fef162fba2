"""Rows of the endpoint table are slots: endpoints come and go without moving the others."""

from dataclasses import replace

import numpy as np
import pytest

from data.catalog.types import ServiceTimes
from router.endpoints import IDENTITY, VACANT, EndpointSpec, EndpointTable
from router.leases import LeaseBook

SPEC = EndpointSpec(
    endpoint_id="b/small/0",
    site="b",
    model="m@1",
    config="small",
    gpu_type="H100",
    gpus=1,
    times=ServiceTimes(p0=0.01, p1=1e-5, p2=1e-9, d0=0.01, d1=1e-4, d2=1e-8),
    kv_capacity_tokens=100_000,
    batch_token_budget=8192,
    max_seqs=64,
    context_limit_tokens=32_768,
)


def test_a_new_endpoint_takes_over_every_identity_column_and_is_not_ready_yet() -> None:
    table = EndpointTable([SPEC, replace(SPEC, endpoint_id="b/small/1")])
    other = replace(SPEC, endpoint_id="c/big/0", site="c", model="m@2", gpu_type="L40S", gpus=2, max_seqs=8)
    table.put(1, other)
    fresh = EndpointTable([SPEC, other])
    for column in IDENTITY:
        assert np.array_equal(getattr(table, column), getattr(fresh, column)), column
    assert table.specs == fresh.specs
    assert table.ready.tolist() == [True, False]
    assert table.version == 1


def test_identity_names_every_column_that_a_spec_sets() -> None:
    plain, other = EndpointTable([SPEC]), EndpointTable([VACANT])
    differs = {
        name
        for name, values in vars(plain).items()
        if isinstance(values, np.ndarray) and not np.array_equal(values, getattr(other, name), equal_nan=False)
    }
    unreported = {"reported_at_s", "running", "waiting", "kv_use", "prefill_since_s"}
    assert differs - unreported <= set(IDENTITY)


def test_growing_keeps_what_is_there_and_adds_vacant_rows() -> None:
    table = EndpointTable([SPEC])
    table.inflight[0] = 3
    table.grow(4)
    assert len(table) == 4
    assert table.inflight.tolist() == [3, 0, 0, 0]
    assert table.ready.tolist() == [True, False, False, False]
    assert table.specs[1:] == (VACANT,) * 3
    book = LeaseBook(EndpointTable([SPEC]))
    book.resized()
    with pytest.raises(ValueError, match="does not shrink"):
        table.grow(2)
