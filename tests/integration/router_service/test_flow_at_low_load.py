"""Where nobody waits, a flow control changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from router.pb.v1 import router_pb2 as pb
from router.slomax.registry import flow_factory


@pytest.mark.parametrize("seed", [1, 2])
def test_at_low_load_every_request_goes_where_it_would_go_without(
    make_world: Any, endpoint: Any, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    asks = [
        (int(rng.integers(50, 1500)), int(rng.integers(1, 40)), float(rng.uniform(0.5, 2.0))) for _ in range(150)
    ]
    chosen: list[list[str]] = []
    for flow in (None, flow_factory("slomax", {})):
        world = make_world([endpoint(number) for number in range(4)], flow=flow)
        placed = []
        for number, (tokens, prefix, gap_s) in enumerate(asks):
            blocks = np.arange(prefix * 100, prefix * 100 + tokens // 16, dtype=np.uint64).tobytes()
            reply = world.ask(request_id=str(number), input_tokens=tokens, block_hashes=blocks)
            assert reply.queued_s == 0.0
            placed.append(reply.placement.endpoint_id)
            world.clock.now_s += 0.05
            lease = reply.placement.lease_id
            assert world.tell(lease, first_token=pb.FirstToken(ttft_s=0.05)) == "accepted"
            world.clock.now_s += gap_s
            assert world.tell(lease, finished=pb.Finished(output_tokens=20)) == "accepted"
        chosen.append(placed)
        assert world.counts() == 0
    assert chosen[0] == chosen[1]
    assert len(set(chosen[0])) > 1
