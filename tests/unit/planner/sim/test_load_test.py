"""The load test is the simulator: same requests, same times, to the last bit; its samples are what they claim."""

from __future__ import annotations

import numpy as np
import pytest

from data.catalog.types import ServiceTimes
from data.fleet.types import Fleet, Model, Site, Tenant, WorkloadClass
from data.types import Request, Slo
from planner.sim.load_test import Engine, Sample, draw_sample, serve, serve_alone
from planner.sim.run import simulate
from planner.sim.settings import SimSettings
from router.endpoints import EndpointSpec, EndpointTable
from router.registry import make_policy

TIMES = ServiceTimes(p0=0.012, p1=1.0e-4, p2=1.7e-9, d0=0.017, d1=7e-5, d2=2.7e-8)
ENGINE = Engine(TIMES, 2500, 16, 4096, 64)
SLO = Slo(ttft_s=1.0, tpot_s=0.06)


class Keep:
    """Keeps when each request ended."""

    def __init__(self) -> None:
        self.finished_s: dict[int, float] = {}

    def decision(self, row: dict[str, object]) -> None:
        """Not needed."""

    def outcome(self, row: dict[str, object]) -> None:
        """One request ended."""
        self.finished_s[int(str(row["request_id"]))] = float(str(row["finished_s"]))


def sample(count: int = 300) -> Sample:
    return draw_sample(2000.0, 200.0, 1.0, count, 16_384, np.random.default_rng(3))


@pytest.mark.parametrize("rate", [0.5, 3.0, 8.0])
def test_a_routed_simulation_of_the_same_requests_gives_the_same_times(rate: float) -> None:
    """Idle, busy and overloaded with preemptions."""
    drawn = sample()
    at = np.cumsum(drawn.gaps) / rate
    found = serve([ENGINE.replica()], drawn, at)
    fleet = Fleet(
        "one", (Site("here", "compute", "zone"),), (), (), (Model("m", "1", "-", 16_384),), (),
        (WorkloadClass("c", SLO),), (Tenant("t"),),
    )  # fmt: skip
    spec = EndpointSpec("here/0", "here", "m@1", "x", "g", 1, TIMES, 2500 * 16, 4096, 64, 16_384)
    table, kept = EndpointTable([spec]), Keep()
    trace = (
        Request(i, float(at[i]), int(drawn.prompts[i]), int(drawn.outputs[i]), int(drawn.outputs[i]), model="m@1",
                tenant="t", workload_class="c", origin="here")
        for i in range(len(at))
    )  # fmt: skip
    policy = make_policy("least_request", {}, table, 0)
    result = simulate(fleet, [spec], trace, policy, SimSettings(step_noise=0.0), table=table, sink=kept)
    assert [kept.finished_s[i] for i in range(len(at))] == found.finished_s.tolist()
    assert result.total.met == found.met(SLO, drawn.outputs).sum()


def test_a_request_alone_never_waits() -> None:
    drawn = sample()
    alone = serve_alone(ENGINE, drawn)
    loaded = serve([ENGINE.replica()], drawn, np.cumsum(drawn.gaps) / 6.0)
    assert (alone.ttft_s <= loaded.ttft_s + 1e-6).all()
    one = int(drawn.prompts[0])
    assert alone.ttft_s[0] == pytest.approx(TIMES.prefill_s(one) if one <= 4096 else alone.ttft_s[0])


def test_more_replicas_serve_sooner() -> None:
    drawn = sample()
    at = np.cumsum(drawn.gaps) / 6.0
    one, four = (serve([ENGINE.replica() for _ in range(count)], drawn, at) for count in (1, 4))
    assert four.met(SLO, drawn.outputs).sum() > one.met(SLO, drawn.outputs).sum()
    assert np.median(four.ttft_s) < np.median(one.ttft_s)


def test_what_never_fits_is_not_served() -> None:
    drawn = Sample(np.ones(2), np.array([100_000, 100]), np.array([10, 10]))
    found = serve([ENGINE.replica()], drawn, np.arange(2.0))
    assert found.met(Slo(), drawn.outputs).tolist() == [False, True]
    assert np.isinf(found.e2e_s[0])


def test_one_token_answers_have_no_time_per_token() -> None:
    drawn = Sample(np.ones(1), np.array([100]), np.array([1]))
    found = serve([ENGINE.replica()], drawn, np.zeros(1))
    assert found.met(Slo(tpot_s=1e-9), drawn.outputs).tolist() == [True]
    assert found.met(Slo(ttft_s=1e-9), drawn.outputs).tolist() == [False]
    assert found.met(Slo(deadline_s=1e-9), drawn.outputs).tolist() == [False]


def test_a_sample_has_the_means_and_spread_that_were_asked_for() -> None:
    drawn = draw_sample(2000.0, 200.0, 0.5, 20_000, 10**6, np.random.default_rng(5))
    assert drawn.prompts.mean() == pytest.approx(2000.0, rel=0.02)
    assert drawn.outputs.mean() == pytest.approx(200.0, rel=0.02)
    assert drawn.prompts.std() / drawn.prompts.mean() == pytest.approx(0.5, rel=0.05)
    assert (drawn.gaps.mean(), drawn.gaps.std()) == pytest.approx((1.0, 1.0), rel=0.03)


def test_the_same_seed_gives_the_same_sample_within_the_context() -> None:
    first, second = sample(), sample()
    assert first.prompts.tolist() == second.prompts.tolist()
    assert (first.prompts + first.outputs <= 16_384).all()
    assert first.prompts.min() >= 1
