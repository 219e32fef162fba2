"""The capacity split of SLOMax as numbers: which share of each pool serves which class and tenant.

A *pool* is the replicas of one model and GPU type at one site; a *line* is one stream of demand (class, tenant)
that may use some pools. Rates are output tokens/s. Equation numbers are those of ``docs/formulation.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from data.errors import SettingError
from data.types import FloatArray, IntArray
from solver.linear import SolveStatus
from solver.problem import LARGEST, BoolArray

SplitMethod = Literal["cbc", "cp_sat", "greedy", "regret_greedy", "kept"]


@dataclass(frozen=True, slots=True)
class CapacityPool:
    """One pool.

    Attributes:
        parts: Levels in one replica (>= 1): a small pool is split in fractions of a replica.
        rate: Shape (C, replicas × parts + 1): SLO-feasible output tokens/s of that many parts given to the
            class alone, F[n]; starts at 0, never falls.
        current: Shape (C,): parts that each class has now.
        move_limit: Parts that may change class in one period (running work is never pre-empted).
    """

    replicas: int
    parts: int
    rate: FloatArray
    current: IntArray
    move_limit: int

    @property
    def levels(self) -> int:
        """Parts of the whole pool."""
        return self.replicas * self.parts


@dataclass(frozen=True, slots=True)
class CapacityProblem:
    """Pools, lines of demand and what each is worth.

    Attributes:
        workload_class: Shape (K,): class of each line.
        tier: Shape (K,): fairness group of each line, 0 = the highest tier.
        permitted: Shape (pools, K): the line may use the pool.
        demand: Shape (K,): forecast (p90) tokens/s.
        guarantee: Shape (K,): guaranteed tokens/s, at most the demand.
        weight: Shape (K,): worth of a token.
        miss_penalty: Shape (K,): worth lost for each guaranteed token that is missed.
        debt: Shape (K,): factor (1 or more) on worth and penalty of the guaranteed part of tenants that got less
            than their guarantee lately; ``None`` = 1 for all.
    """

    pools: tuple[CapacityPool, ...]
    classes: int
    workload_class: IntArray
    tier: IntArray
    permitted: BoolArray
    demand: FloatArray
    guarantee: FloatArray
    weight: FloatArray
    miss_penalty: FloatArray
    debt: FloatArray | None = None

    def __post_init__(self) -> None:
        if self.debt is not None and not ((self.debt >= 1) & (self.debt <= LARGEST)).all():
            raise SettingError("number cannot be split", field="debt", expected=f"1 to {LARGEST:g}, finite")
        for name in ("demand", "guarantee", "weight", "miss_penalty"):
            values = getattr(self, name)
            if not ((values >= 0) & (values <= LARGEST)).all():
                raise SettingError("number cannot be split", field=name, expected=f"0 to {LARGEST:g}, finite")
        for pool in self.pools:
            shape = (self.classes, pool.levels + 1)
            if pool.rate.shape != shape:
                raise SettingError(
                    "capacity table has the wrong shape", value=pool.rate.shape, expected=str(shape)
                )
            if (np.diff(pool.rate, axis=1) < 0).any() or pool.rate[:, 0].any():
                raise SettingError("capacity table must start at 0 and never fall", field="rate")

    def penalty(self) -> FloatArray:
        """Shape (K,): worth lost for each guaranteed token that is missed, debts included."""
        return self.miss_penalty if self.debt is None else self.miss_penalty * self.debt

    def segment_worth(self, segment_value: tuple[float, float, float]) -> FloatArray:
        """Shape (K, 3): worth of a token in the guarantee, base and burst part of each line, debts included."""
        worth: FloatArray = self.weight[:, None] * np.array(segment_value)
        if self.debt is not None:
            worth[:, 0] *= self.debt
        return worth


@dataclass(frozen=True, slots=True)
class CapacitySettings:
    """How the split weighs things.

    Attributes:
        segment_value: Worth of a token in the guarantee, base and burst part of a line's demand.
        base_share: Share of the demand that ends the base part (0 to 1).
        fairness: Weight of the worst-served line of each tier (>= 0).
        move_cost: Cost of giving one replica to another class, as a share of what it carries (>= 0).
        quota_unit: Tokens/s in one quota unit of the model (> 0).
        time_limit_s, relative_gap, seed: Limits of the search.
    """

    segment_value: tuple[float, float, float] = (1.0, 0.6, 0.25)
    base_share: float = 0.8
    fairness: float = 0.15
    move_cost: float = 0.02
    quota_unit: float = 1.0
    time_limit_s: float = 10.0
    relative_gap: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        checks = (
            ("segment_value", all(v >= 0 for v in self.segment_value), "three numbers, 0 or more"),
            ("base_share", 0 <= self.base_share <= 1, "a share from 0 to 1"),
            ("fairness", self.fairness >= 0, "0 or more"),
            ("move_cost", self.move_cost >= 0, "0 or more"),
            ("quota_unit", self.quota_unit > 0, "above 0"),
            ("time_limit_s", self.time_limit_s > 0, "seconds above 0"),
            ("relative_gap", 0 <= self.relative_gap <= 1, "a share from 0 to 1"),
        )
        for name, ok, expected in checks:
            if not ok:
                raise SettingError(
                    "setting out of range", field=name, value=getattr(self, name), expected=expected
                )


@dataclass(frozen=True, slots=True)
class CapacitySplit:
    """Answer: parts of each pool for each class, and quotas.

    Attributes:
        parts: Shape (pools, C).
        quota: Shape (pools, K): tokens/s.
        missed: Shape (K,): guaranteed tokens/s that no pool could give.
        objective: Value of the split (worth × tokens/s), recomputed from its definition.
        bound: No split is worth more; ``inf`` if nothing was proved.
        method: Where it comes from: ``cbc``, ``cp_sat``, ``greedy``, ``regret_greedy`` or ``kept``.
        status: ``OPTIMAL`` = proved to within the gap that was asked for; ``FEASIBLE_LIMIT`` = it keeps every
            rule and nothing more is known. A split always exists, so there are no others.
        note: What went wrong on the way, for people.
    """

    parts: IntArray
    quota: FloatArray
    missed: FloatArray
    objective: float
    bound: float
    method: SplitMethod
    status: SolveStatus
    note: tuple[str, ...] = ()

    @property
    def proved(self) -> bool:
        """Whether it was proved to within the gap that was asked for."""
        return self.status is SolveStatus.OPTIMAL

    @property
    def gap(self) -> float:
        """(bound − objective) / bound, 0 or more; infinite if nothing was proved."""
        if not math.isfinite(self.bound):
            return math.inf
        return max(self.bound - self.objective, 0.0) / max(abs(self.bound), 1e-12)

    def summary(self) -> str:
        """One line: method, status, worth, bound and gap."""
        told = f"worth {self.objective:.6g}"
        if math.isfinite(self.bound):
            told += f" of at most {self.bound:.6g}, gap {self.gap:.2%}"
        return f"{self.method} {self.status.value}: {told}"
