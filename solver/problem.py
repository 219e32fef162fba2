"""The placement problem as numbers: what may stand where, what it carries, what demand is worth, what is promised.

Residency and permission are *missing*: a placement or a flow that a hard rule forbids has no entry here, so no
tolerance of a solver can let it through. Equation numbers are those of ``docs/formulation.md``.

Sizes: S sites, G pools, M models, C classes, P placements (site × configuration), J commodities, L value segments.
Rates are output tokens/s, power kW, memory GB. "No limit" is ``inf``. Values are worth per token.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from data.errors import SettingError
from data.types import FloatArray, IntArray

BoolArray = npt.NDArray[np.bool_]
LARGEST = 1e9
"""No rate, count or value may be above this: larger ones lose digits in a solver."""


@dataclass(frozen=True, slots=True)
class SiteLimits:
    """One entry a site."""

    names: tuple[str, ...]
    zone: IntArray
    power_kw: FloatArray
    ingress_tokens_per_s: FloatArray
    host_memory_gb: FloatArray
    start_budget_gpus: FloatArray


@dataclass(frozen=True, slots=True)
class Pools:
    """One entry a GPU pool; ``gpus`` is what the planner may use (reserved ones are taken off)."""

    site: IntArray
    gpu_type: tuple[str, ...]
    gpus: FloatArray


@dataclass(frozen=True, slots=True)
class Placements:
    """One entry a pair (site, configuration) that may hold replicas.

    Attributes:
        site, pool, model: Indices.
        config: Names, for the plan document only.
        gpus: GPUs of one replica.
        power_kw: Power of one replica.
        weights_gb: Host memory of one prewarmed copy.
        rate: Shape (P, C): plannable output tokens/s of one replica on one class alone, i.e. load ceiling ×
            SLO-feasible rate (ρμ); 0 = cannot serve the class.
        mix_rate: The same at the class mix of the model's demand.
        current: Replicas that stand now (n⁰).
        lower, upper: Bounds of the replicas; equal to ``current`` where a site or model is frozen.
        start_cost: Value lost (value-weighted tokens/s) while one replica starts (κ).
        prewarm_limit: Prewarmed copies that may stand here, 0 = none.
        prewarm_current: Prewarmed copies that stand now.
    """

    site: IntArray
    pool: IntArray
    model: IntArray
    config: tuple[str, ...]
    gpus: IntArray
    power_kw: FloatArray
    weights_gb: FloatArray
    rate: FloatArray
    mix_rate: FloatArray
    current: IntArray
    lower: IntArray
    upper: IntArray
    start_cost: FloatArray
    prewarm_limit: IntArray
    prewarm_current: IntArray

    def __len__(self) -> int:
        return len(self.site)


@dataclass(frozen=True, slots=True)
class Commodities:
    """One entry a stream of demand with the same model, class, tenant group and origin.

    Attributes:
        allowed: Shape (J, S): may be served there (permission, residency, reach, some placement that can).
        entering: Shape (J, S): share of the flow that enters the site from elsewhere, 0 or 1 unless merged.
        route_cost: Shape (J, S): value per token lost on the way (η r).
        width: Shape (J, L): width of each value segment, tokens/s (Δ).
        value: Shape (J, L): worth of a token there, falling along a row (w φ).
        weight: Worth of a token that is certain to be wanted (w).
    """

    model: IntArray
    workload_class: IntArray
    allowed: BoolArray
    entering: FloatArray
    route_cost: FloatArray
    width: FloatArray
    value: FloatArray
    weight: FloatArray

    def __len__(self) -> int:
        return len(self.model)


@dataclass(frozen=True, slots=True)
class ReplicaPromise:
    """At least ``replicas`` over the listed placements (10)."""

    label: str
    placements: IntArray
    replicas: int
    penalty: float
    """Value-weighted tokens/s that one missing replica costs."""


@dataclass(frozen=True, slots=True)
class FlowPromise:
    """At least ``tokens_per_s`` of the listed commodities served at the marked sites (10)."""

    label: str
    commodities: IntArray
    sites: BoolArray
    """Shape (S,): sites whose service counts."""
    tokens_per_s: float
    penalty: float
    """Value that one missing token costs."""


@dataclass(frozen=True, slots=True)
class SiteLossCover:
    """Capacity of a model that must survive the loss of any one site (11)."""

    label: str
    model: int
    tokens_per_s: float
    penalty: float


@dataclass(frozen=True, slots=True)
class BurstCover:
    """Prewarmed capacity of a model in a zone that is worth having, up to ``tokens_per_s`` (8)."""

    model: int
    zone: int
    tokens_per_s: float
    value: float


@dataclass(frozen=True, slots=True)
class PlacementProblem:
    """Everything a placement solver sees. Names are for reports only; the maths uses indices."""

    sites: SiteLimits
    pools: Pools
    placements: Placements
    commodities: Commodities
    models: tuple[str, ...]
    classes: tuple[str, ...]
    replica_promises: tuple[ReplicaPromise, ...] = ()
    flow_promises: tuple[FlowPromise, ...] = ()
    covers: tuple[SiteLossCover, ...] = ()
    bursts: tuple[BurstCover, ...] = ()
    prewarm_gpu_share: float = 0.25
    """GPU claim of one prewarmed copy, as a share of its replica's GPUs (θ)."""
    gpu_price: float = field(default=1e-3)
    """Worth (value-weighted tokens/s) of one GPU left free (ε): breaks ties towards smaller plans."""

    def __post_init__(self) -> None:
        _check_shapes(self)
        _check_numbers(self)


def _check_shapes(problem: PlacementProblem) -> None:
    count, classes = len(problem.placements), len(problem.classes)
    jobs, sites = len(problem.commodities), len(problem.sites.names)
    shapes = (
        ("placements.rate", problem.placements.rate.shape, (count, classes)),
        ("commodities.allowed", problem.commodities.allowed.shape, (jobs, sites)),
        ("commodities.route_cost", problem.commodities.route_cost.shape, (jobs, sites)),
        ("commodities.entering", problem.commodities.entering.shape, (jobs, sites)),
        ("commodities.value", problem.commodities.value.shape, problem.commodities.width.shape),
    )
    for name, got, want in shapes:
        if got != want:
            raise SettingError("shape does not fit the problem", field=name, value=got, expected=str(want))


def _check_numbers(problem: PlacementProblem) -> None:
    places, jobs = problem.placements, problem.commodities
    arrays = (
        ("pools.gpus", problem.pools.gpus),
        ("placements.rate", places.rate),
        ("placements.gpus", places.gpus),
        ("placements.power_kw", places.power_kw),
        ("placements.start_cost", places.start_cost),
        ("placements.upper", places.upper),
        ("commodities.width", jobs.width),
        ("commodities.value", jobs.value),
        ("commodities.route_cost", jobs.route_cost),
        ("reservations", np.array([p.replicas for p in problem.replica_promises], dtype=float)),
        ("reservations", np.array([p.tokens_per_s for p in problem.flow_promises])),
    )
    for name, values in arrays:
        bad = ~((values >= 0) & (values <= LARGEST))
        if bad.any():
            raise SettingError(
                "number cannot be planned with",
                field=name,
                value=float(values[bad].flat[0]),
                expected=f"0 to {LARGEST:g}, finite",
            )
    if (places.lower > places.upper).any():
        raise SettingError("lower bound above the upper one", field="placements.lower")
