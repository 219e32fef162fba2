"""The four sites under the demo's tenants at some rate, and one run there, a plan's capacity split in force.

``Scenario.run`` carries out a plan's replicas and traffic shares, but not its capacity split, which the service
puts on its flow control. Here :class:`SplitInForce` does that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from data.errors import SettingError
from data.fleet.reference import reference_fleet
from data.fleet.types import Fleet
from data.plan import PlanDocument
from planner.arm import Arm, flow_of, sites_of
from planner.demo.settings import DemoSettings
from planner.demo.steps import demo_scenario
from planner.plan_execution import read_plans
from planner.scenario import Scenario, carried_out, load_predictor
from planner.sim.result import RunResult
from planner.sim.run import simulate
from planner.sim.waiting_room import FlowFactory
from router.endpoints import EndpointTable
from router.registry import make_policy
from router.slomax.context import FlowContext
from router.slomax.corrected import Corrected
from router.slomax.types import FlowControl

SECONDS = 400.0
"""As in the demo: the hot spell at B lasts from 200 s to 300 s."""
PLANNING_SEED = 1001
"""Demand of this seed is planned for; reported runs have others."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The reference scenario at a load.

    Attributes:
        rate_per_s: Requests/s of all tenants together (above 0).
        seconds: Length of each run (above 0).
    """

    rate_per_s: float
    seconds: float = SECONDS

    @property
    def fleet(self) -> Fleet:
        """The fleet as its file says."""
        return reference_fleet("four-sites")

    def scenario(self, *, budgets: bool = True) -> Scenario:
        """What all arms share; without ``budgets`` no tenant has a limit of its own."""
        found = demo_scenario(self.fleet, DemoSettings(self.rate_per_s, self.seconds))
        return found if budgets else replace(found, fleet=without_budgets(found.fleet))


def without_budgets(fleet: Fleet) -> Fleet:
    """The same fleet whose tenants may send what they like."""
    tenants = tuple(
        replace(tenant, tokens_per_s_budget=None, requests_per_s_budget=None) for tenant in fleet.tenants
    )
    return replace(fleet, tenants=tenants)


class SplitInForce:
    """Makes an arm's flow control and puts the capacity split of the plan in force on it.

    Args:
        make: Makes the flow control.
        plan: In force when the run begins.
    """

    def __init__(self, make: FlowFactory, plan: PlanDocument) -> None:
        self._make = make
        self._plan = plan
        self._flow: FlowControl | None = None

    def __call__(self, context: FlowContext) -> FlowControl:
        """One flow control, under the first plan's split."""
        self._flow = self._make(context)
        self.take(self._plan, context.now_s)
        return self._flow

    def take(self, plan: PlanDocument, now_s: float) -> None:
        """Another plan is in force: quotas of each model and class, and what the feedback is to expect."""
        assert self._flow is not None
        quotas: dict[tuple[str, str], float] = defaultdict(float)
        for split in plan.splits:
            quotas[split.model, split.workload_class] += split.tokens_per_s
        self._flow.set_quotas(quotas, now_s)
        if isinstance(self._flow, Corrected):
            self._flow.expect(plan.splits)


class CeilingWatch:
    """Looks once a second at every endpoint that is up: its requests in flight as a share of those it can run.

    Args:
        table: The router's.
        ceilings: Load ceiling of each endpoint.
    """

    def __init__(self, table: EndpointTable, ceilings: Sequence[float]) -> None:
        self._table = table
        self._ceilings = np.array(ceilings)
        self._looks = self._over = 0
        self._peak = 0.0

    def __call__(self, now_s: float) -> None:  # noqa: ARG002
        """One look."""
        up = self._table.ready
        share = self._table.inflight[up] / self._table.max_seqs[up]
        self._looks += share.size
        self._over += int((share > self._ceilings[up]).sum())
        self._peak = max(self._peak, float(share.max(initial=0.0)))

    def figures(self) -> dict[str, float]:
        """The highest share seen, and how often an endpoint was above its ceiling."""
        return {"peak_in_flight": self._peak, "over_ceiling": self._over / max(self._looks, 1)}


@dataclass(frozen=True, slots=True)
class ValueRun:
    """Runs an arm as ``Scenario.run`` does, with the load ceilings watched.

    Attributes:
        scenario: What all arms share.
        split: The capacity split of the arm's plan is in force at its flow control; it must have both.
    """

    scenario: Scenario
    split: bool = False

    def __call__(self, arm: Arm, seed: int) -> RunResult:
        """One run; ``extra`` of the result holds what the watch saw."""
        scenario, flow = self.scenario, flow_of(arm)
        in_force = self._in_force(arm, flow) if self.split else None
        carried = carried_out(scenario.fleet, arm.plan_path)
        table = EndpointTable(carried.specs)
        watch = CeilingWatch(table, [scenario.fleet.config(spec.config).load_ceiling for spec in carried.specs])
        found = simulate(
            scenario.fleet,
            carried.specs,
            scenario.requests(seed),
            make_policy(arm.policy, arm.settings, table, seed, load_predictor(arm.predictor_path)),
            replace(scenario.settings, seed=seed),
            table=table,
            progress=watch,
            flow=in_force or flow,
            sites=sites_of(arm),
            shares=carried.shares,
            starts=carried.starts,
            drains=carried.drains,
            switches=carried.switches,
            on_plan=None if in_force is None else in_force.take,
            gpus=carried.gpus,
        )
        return replace(found, extra={**found.extra, **watch.figures()})

    def _in_force(self, arm: Arm, flow: FlowFactory | None) -> SplitInForce:
        if flow is None or arm.plan_path is None:
            raise SettingError(
                "no capacity split", field="arm", value=arm.name, expected="a plan and a flow control"
            )
        return SplitInForce(flow, read_plans(arm.plan_path)[0].plan)
