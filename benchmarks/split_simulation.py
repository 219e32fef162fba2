"""Goodput in the simulator of a capacity split: its quotas in force at SLOMax, traffic shared out by its quotas.

Each pool of an instance is a model of its own on H100s (Llama 3.1 8B). A line of demand, one class of one tenant,
sends to the pools in the shares that the split gives it (to all it may use, equally, where the split gives it
nothing). All else, seeds included, is the same for every split, so differences are paired.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from data.catalog.load import load_catalog
from data.fleet.reference import reference_fleet
from data.fleet.types import TIERS, Fleet, Placed, Tenant
from data.synth.arrivals import Gaps
from data.synth.assign import Assignment
from data.synth.mix import Stream
from data.synth.profile import TraceProfile
from data.synth.profiles import PROFILES
from data.types import FloatArray, TraceBatch
from planner.scenario import Scenario
from planner.sim.result import RunResult
from planner.sim.run import simulate
from planner.trace_source import Shaped, SynthTrace
from router.build import endpoint_specs
from router.endpoints import EndpointTable
from router.registry import make_policy
from router.slomax.context import FlowContext
from router.slomax.flow_control import SloMax
from solver.capacity import close_split, split_capacity
from solver.capacity_greedy import greedy_split
from solver.capacity_problem import CapacityPool, CapacityProblem, CapacitySettings, CapacitySplit
from solver.capacity_regret import regret_split
from solver.child import ChildSolver
from solver.split_instances import POOLING_LOSS, SplitSize, random_split

CLASSES = ("interactive", "long_context", "batch")
PROFILE: dict[str, TraceProfile] = {
    "interactive": PROFILES["chat"],
    "long_context": replace(PROFILES["batch"], name="long", gaps=Gaps(cv=1.0)),
    "batch": PROFILES["code"],
}
OUTPUT_TOKENS = {
    kind: float(profile.kinds[0].output_tokens.at(np.linspace(0.0, 1.0, 1001)).mean())
    for kind, profile in PROFILE.items()
}
"""Mean output tokens of a request; rates follow from it."""
ALONE = np.array([5500.0, 300.0, 900.0])
"""Output tokens/s of one replica given to a class alone: what prefill alone allows, near enough."""
MIX = np.array([0.5, 0.2, 0.3])
"""Share of the pools' capacity that each class asks for, at a load of 1."""
POOLS, TENANTS, PARTS = 3, 6, 4
WINDOW_S = 8.0


def instance(seed: int, load: float) -> CapacityProblem:
    """A random split with the pools of this module: 2 to 4 replicas each."""
    drawn = random_split(SplitSize(POOLS, TENANTS, load=load, settled=False), 500 + seed)
    rng = np.random.default_rng([seed, 0x51])
    pools = tuple(_pool(int(rng.integers(2, 5))) for _ in range(POOLS))
    demand, guarantee = drawn.demand.copy(), drawn.guarantee.copy()
    replicas = sum(pool.replicas for pool in pools)
    for c in range(len(CLASSES)):
        mine = drawn.workload_class == c
        if mine.any():
            factor = load * MIX[c] * ALONE[c] * replicas / demand[mine].sum()
            demand[mine] *= factor
            guarantee[mine] *= factor
    return replace(drawn, pools=pools, demand=demand, guarantee=guarantee)


def _pool(replicas: int) -> CapacityPool:
    levels = replicas * PARTS
    count = np.arange(levels + 1) / PARTS
    loss = np.array(POOLING_LOSS)[:, None] * np.sqrt(count) * np.minimum(count, 1.0)
    rate = np.maximum.accumulate(ALONE[:, None] * np.maximum(count - 0.5 * loss, 0.0), axis=1)
    return CapacityPool(replicas, PARTS, rate, np.full(len(CLASSES), levels), levels)


def ways(problem: CapacityProblem, settings: CapacitySettings, child: ChildSolver) -> dict[str, CapacitySplit]:
    """The splits that are compared."""
    return {
        "solver": split_capacity(problem, settings, child),
        "regret": close_split(problem, settings, *regret_split(problem), "regret_greedy"),
        "greedy": close_split(problem, settings, *greedy_split(problem, settings), "greedy"),
    }


def fleet_of(problem: CapacityProblem) -> Fleet:
    """One model a pool, one tenant a line."""
    base = reference_fleet("one-pool")
    models = tuple(replace(base.models[0], name=f"pool{p}") for p in range(len(problem.pools)))
    configs = tuple(replace(base.configs[0], name=f"c{p}", model=model.key) for p, model in enumerate(models))
    placed = tuple(Placed("main", config.name, problem.pools[p].replicas) for p, config in enumerate(configs))
    tenants = tuple(
        Tenant(f"line{k}", TIERS[int(tier)], models=tuple(models[p].key for p in np.flatnonzero(allowed)))
        for k, (tier, allowed) in enumerate(zip(problem.tier, problem.permitted.T, strict=True))
    )
    total = sum(pool.replicas for pool in problem.pools)
    gpus = (replace(base.pools[0], count=total),)
    return replace(base, pools=gpus, models=models, configs=configs, placement=placed, tenants=tenants)


def streams(problem: CapacityProblem) -> tuple[Stream, ...]:
    """What each line sends, for no pool yet."""
    found = []
    for k, demand in enumerate(problem.demand.tolist()):
        kind = CLASSES[int(problem.workload_class[k])]
        if demand > 0:
            assign = Assignment("", f"line{k}", kind, (("main", 1.0),))
            found.append(Stream(PROFILE[kind], demand / OUTPUT_TOKENS[kind], assign))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class SharedOut:
    """The lines' requests, each sent to a pool by a draw that is the same for every split.

    Attributes:
        upto: Shape (K, pools): shares of the pools in each line, summed up.
    """

    lines: SynthTrace
    models: tuple[str, ...]
    upto: FloatArray

    @property
    def label(self) -> str:
        """The label of the lines."""
        return self.lines.label

    @property
    def varies(self) -> str:
        """All of it, as in the lines."""
        return self.lines.varies

    def batches(self, seed: int, skipped: dict[str, int] | None = None) -> Iterator[TraceBatch]:
        """Requests in order of arrival."""
        rng = np.random.default_rng([seed, 0x5E])
        for batch in self.lines.batches(seed, skipped):
            line = np.array([int(name.removeprefix("line")) for name in batch.tenant])
            pool = (rng.random(len(batch))[:, None] >= self.upto[line]).sum(axis=1)
            names = [self.models[min(p, len(self.models) - 1)] for p in pool.tolist()]
            yield replace(batch, model=names)


def _shares(problem: CapacityProblem, split: CapacitySplit, k: int) -> FloatArray:
    quota = split.quota[:, k]
    if quota.sum() <= 0:
        quota = problem.permitted[:, k].astype(np.float64)
    shares: FloatArray = quota / quota.sum()
    return shares


@dataclass(frozen=True, slots=True)
class WithQuotas:
    """Makes SLOMax with a split in force."""

    quotas: dict[tuple[str, str], float]

    def __call__(self, context: FlowContext) -> SloMax:
        """One flow control."""
        flow = SloMax(context)
        flow.set_quotas(self.quotas, context.now_s)
        return flow


def quotas_of(problem: CapacityProblem, split: CapacitySplit, fleet: Fleet) -> dict[tuple[str, str], float]:
    """Tokens/s of each model and class: what the class's parts of the pool carry."""
    rates: dict[tuple[str, str], float] = defaultdict(float)
    for p, pool in enumerate(problem.pools):
        for c, kind in enumerate(CLASSES):
            rates[fleet.models[p].key, kind] += float(pool.rate[c, split.parts[p, c]])
    return dict(rates)


LOAD = 1.6
SETTINGS = CapacitySettings(time_limit_s=5.0)


def simulated_lines(child: ChildSolver, instances: int) -> Iterator[dict[str, float]]:
    """One line an instance, as it is done: good tokens of each way to split for each second of arrivals."""
    for seed in range(instances):
        problem = instance(seed, LOAD)
        line = {"instance": float(seed)}
        for name, split in ways(problem, SETTINGS, child).items():
            line[name] = simulated(problem, split, seed).total.good_output_tokens / WINDOW_S
        yield line


def simulated(problem: CapacityProblem, split: CapacitySplit, seed: int) -> RunResult:
    """One run of an instance under a split."""
    fleet = fleet_of(problem)
    lines = SynthTrace(streams(problem), WINDOW_S, "lines of a split")
    upto = np.cumsum([_shares(problem, split, k) for k in range(len(problem.demand))], axis=1)
    case = Scenario(fleet, Shaped(SharedOut(lines, tuple(model.key for model in fleet.models), upto)))
    specs = endpoint_specs(fleet, load_catalog(), fleet.placement)
    table = EndpointTable(specs)
    policy = make_policy("tokenpilot", {}, table, seed, None)
    settings = replace(case.settings, seed=seed)
    flow = WithQuotas(quotas_of(problem, split, fleet))
    return simulate(fleet, specs, case.requests(seed), policy, settings, table=table, flow=flow)
