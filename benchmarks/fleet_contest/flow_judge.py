"""What a series of placements would have served of the demand that came true, window by window, by the best
routing.

Linear programs: most tokens, dearer ones first among equals. Capacity is that of the load tests
without the planner's load ceiling. A replica that starts in a window serves from the end of its load on; one that
stops serves nothing more. Queues, bursts inside a window and drains are the simulator's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse
from scipy.optimize import linprog

from benchmarks.fleet_contest.demand import STEP_S
from benchmarks.fleet_contest.setting import Contest
from data.types import FloatArray, IntArray
from solver.placement_rivals.need import replicas_per_token

TIE = 1e-3
"""Weight of a token's worth beside the token."""
BATCH = 12
"""Windows in one program: they do not touch each other, a program for each would only cost time."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One arm over a span.

    Attributes:
        served: Shape (windows, commodities), tokens/s.
        offered: The same.
        goodput: Mean tokens/s served.
        value: The same, value-weighted.
        attainment: Share of the offered tokens.
        gpu_hours: GPUs held × time.
        moves: Replicas started and stopped after the first window.
    """

    served: FloatArray
    offered: FloatArray
    goodput: float
    value: float
    attainment: float
    gpu_hours: float
    moves: int

    @property
    def goodput_per_gpu_hour(self) -> float:
        """Tokens a GPU-hour."""
        return self.goodput * len(self.served) * STEP_S / self.gpu_hours if self.gpu_hours else 0.0


def judge(contest: Contest, first: int, replicas: IntArray) -> Judged:
    """Judge replicas, shape (windows, P), that stand from window ``first`` on."""
    offered = contest.demand.tokens_per_s[:, first : first + len(replicas)].T
    able = serving(contest, replicas)
    served = best_routing(contest, offered, able)
    gpus = contest.template.problem.placements.gpus
    hours = len(replicas) * STEP_S / 3600.0
    return Judged(
        served,
        offered,
        float(served.sum(axis=1).mean()),
        float((served @ contest.worth).mean()),
        float(served.sum() / offered.sum()),
        float((replicas @ gpus).mean() * hours),
        int(np.abs(np.diff(replicas, axis=0)).sum()),
    )


def joined(parts: Sequence[Judged]) -> Judged:
    """Several spans as one."""
    windows = np.array([len(part.served) for part in parts])
    served = np.concatenate([part.served for part in parts])
    offered = np.concatenate([part.offered for part in parts])
    return Judged(
        served,
        offered,
        float(windows @ np.array([part.goodput for part in parts]) / windows.sum()),
        float(windows @ np.array([part.value for part in parts]) / windows.sum()),
        float(served.sum() / offered.sum()),
        sum(part.gpu_hours for part in parts),
        sum(part.moves for part in parts),
    )


def serving(contest: Contest, replicas: IntArray) -> FloatArray:
    """Shape (windows, P): replicas that serve on average in each window; those of the first stand already."""
    before = np.vstack([replicas[:1], replicas[:-1]])
    started = np.maximum(replicas - before, 0)
    ready: FloatArray = replicas - started * np.minimum(contest.load_s / STEP_S, 1.0)
    return ready


def best_routing(contest: Contest, offered: FloatArray, replicas: FloatArray) -> FloatArray:
    """Tokens/s served, shape (windows, commodities), of what is offered, by replicas of shape (windows, P)."""
    problem = contest.template.problem
    need = replicas_per_token(problem)
    ceiling = np.array([c.config.load_ceiling for c in contest.template.capacities])
    j, i = np.nonzero(np.isfinite(need))
    columns, jobs, places = np.arange(len(j)), len(need), need.shape[1]
    # Thousands of tokens/s as the unit of flow.
    values = np.concatenate([np.ones(len(j)), 1000.0 * need[j, i] * ceiling[i]])
    at = (np.concatenate([j, jobs + i]), np.concatenate([columns, columns]))
    rows = scipy.sparse.csr_matrix((values, at), shape=(jobs + places, len(j)))
    gain = 1.0 + TIE * contest.worth[j] / max(float(contest.worth.max()), 1e-12)
    served = np.zeros_like(offered)
    for start in range(0, len(offered), BATCH):
        part = slice(start, min(start + BATCH, len(offered)))
        count = part.stop - start
        limits = np.hstack([offered[part] / 1000.0, replicas[part]]).ravel()
        answer = linprog(
            -np.tile(gain, count), scipy.sparse.block_diag([rows] * count, "csr"), limits, method="highs-ds"
        )
        for k, flow in enumerate(answer.x.reshape(count, -1)):
            served[start + k] = np.bincount(j, flow, jobs) * 1000.0
    return served
