"""The short cycle: where demand goes when the replicas stand and only traffic may move. A linear program.

It is the model of ``docs/formulation.md`` with n fixed, cut to what stands: placements without replicas drop out,
and with them the rows that only bear on replicas.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from data.errors import SettingError
from data.types import FloatArray, IntArray
from solver.linear import ModelSolver, SolveLimits, SolveStatus
from solver.matrix import FLOW_UNIT, build_matrix
from solver.problem import PlacementProblem, Placements


@dataclass(frozen=True, slots=True)
class Redirect:
    """Routing for the replicas that stand.

    Attributes:
        shares: Shape (J, S): share of a commodity's demand that each site should serve; a row sums to at most 1,
            the rest finds no capacity.
        flows: The same in output tokens/s.
        loads: Shape (P, C): output tokens/s of each class on each placement.
        solve_s: Seconds of the solver.
    """

    shares: FloatArray
    flows: FloatArray
    loads: FloatArray
    solve_s: float


def redirect_flows(
    problem: PlacementProblem, replicas: IntArray, solve: ModelSolver, limits: SolveLimits
) -> Redirect | None:
    """Best routing of the problem's demand to replicas that stand.

    Args:
        problem: With the live demand in ``commodities.width`` (tokens/s).
        replicas: Shape (P,), >= 0.
        solve: Solver of the linear program.
        limits: When it must stop.

    Returns:
        ``None`` unless it was solved to optimality: the shares in force are then better than half-made ones.

    Raises:
        SettingError: The replicas do not fit the problem.
    """
    if replicas.shape != (len(problem.placements),) or (replicas < 0).any():
        raise SettingError(
            "replicas do not fit the problem",
            field="replicas",
            value=replicas.shape,
            expected=f"{len(problem.placements)} counts of 0 or more",
        )
    standing = np.flatnonzero(replicas > 0)
    built = build_matrix(_standing_part(problem, standing, replicas), link=False)
    columns = built.columns
    answer = solve(built.model.relaxed(), limits)
    if answer.status is not SolveStatus.OPTIMAL:
        return None
    flows = np.zeros(problem.commodities.allowed.shape)
    flows[columns.flow_job, columns.flow_site] = answer.values[columns.flows] * FLOW_UNIT
    loads = np.zeros_like(problem.placements.rate)
    loads[standing[columns.load_place], columns.load_class] = answer.values[columns.loads] * FLOW_UNIT
    demand = problem.commodities.width.sum(axis=1, keepdims=True)
    shares = np.divide(flows, demand, out=np.zeros_like(flows), where=demand > 0)
    return Redirect(shares, flows, loads, answer.solve_s)


def _standing_part(problem: PlacementProblem, standing: IntArray, replicas: IntArray) -> PlacementProblem:
    """The problem of the placements that stand, their replicas fixed, without what bears on replicas alone."""
    count = replicas[standing]
    places = problem.placements
    fixed = Placements(
        site=places.site[standing],
        pool=places.pool[standing],
        model=places.model[standing],
        config=tuple(places.config[i] for i in standing.tolist()),
        gpus=places.gpus[standing],
        power_kw=places.power_kw[standing],
        weights_gb=places.weights_gb[standing],
        rate=places.rate[standing],
        mix_rate=places.mix_rate[standing],
        current=count,
        lower=count,
        upper=count,
        start_cost=np.zeros(len(standing)),
        prewarm_limit=np.zeros(len(standing), dtype=np.int64),
        prewarm_current=np.zeros(len(standing), dtype=np.int64),
    )
    # Pools and power are the replicas' business: what stands, stands, even where it is more than the fleet states.
    free = replace(problem.pools, gpus=np.maximum(problem.pools.gpus, _claims(problem, standing, count)))
    sites = replace(problem.sites, power_kw=np.full(len(problem.sites.names), np.inf))
    return replace(
        problem,
        sites=sites,
        pools=free,
        placements=fixed,
        replica_promises=(),
        covers=(),
        bursts=(),
        gpu_price=0.0,
    )


def _claims(problem: PlacementProblem, standing: IntArray, count: IntArray) -> FloatArray:
    """GPUs of each pool that the standing replicas hold."""
    places = problem.placements
    claim = (count * places.gpus[standing]).astype(np.float64)
    return np.bincount(places.pool[standing], claim, len(problem.pools.gpus)).astype(np.float64)
