"""What one replica of each configuration can carry of each class within its targets: numbers for the solver.

The rate of a single replica is what placement plans with: it never over-promises a small group, and a larger group
does better by pooling, which the capacity split takes into account.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from data.catalog.load import Catalog
from data.catalog.memory import kv_tokens_at
from data.catalog.types import ReplicaFacts
from data.errors import InputError
from data.fleet.types import Fleet, Model, ReplicaConfig, WorkloadClass
from models.capacity import ClassShape, GroupRate, ReplicaLimits, group_rate
from models.capacity_check import CapacityCase, CapacityCheck, checked_group_rate
from planner.demand import DemandTable
from planner.settings import PlannerSettings


@dataclass(frozen=True, slots=True)
class ConfigCapacity:
    """One configuration: what the catalog knows, and its rates by class name."""

    config: ReplicaConfig
    facts: ReplicaFacts
    power_kw: float
    price_per_hour: float
    groups: dict[str, GroupRate]
    pool_replicas: int = 1

    def rate(self, workload_class: str) -> float:
        """Plannable output tokens/s of one replica on that class alone, within its targets; 0 = cannot."""
        return self.groups[workload_class].of(self.pool_replicas) / self.pool_replicas


@dataclass(frozen=True, slots=True)
class CapacityTable:
    """All configurations that the catalog knows, by name, and why others are missing."""

    configs: dict[str, ConfigCapacity]
    unknown: dict[str, str]

    def of_model(self, model: str) -> list[ConfigCapacity]:
        """Configurations of a model, sorted by name."""
        return [c for name, c in sorted(self.configs.items()) if c.config.model == model]


@dataclass(frozen=True, slots=True)
class Lengths:
    """Mean prompt and output tokens, and the variation of prompts (standard deviation over mean)."""

    prompt: float
    output: float
    variation: float


def capacity_table(
    fleet: Fleet,
    catalog: Catalog,
    demand: DemandTable,
    settings: PlannerSettings,
    check: CapacityCheck | None = None,
) -> CapacityTable:
    """The table for a fleet; lengths that the demand has measured replace those that the classes declare.

    Where ``check`` knows a capacity, or measures it, its answer replaces the closed form's.
    """
    shapes = _measured_shapes(demand, settings)
    configs: dict[str, ConfigCapacity] = {}
    unknown: dict[str, str] = {}
    for config in fleet.configs:
        model = fleet.model(config.model)
        try:
            facts = catalog.facts(model.catalog, config.gpu_type, config.tensor_parallel)
            gpu = catalog.gpu(config.gpu_type)
        except InputError as error:
            unknown[config.name] = error.problem
            continue
        room = kv_tokens_at(facts, gpu, model.engine.gpu_memory_utilization)
        if room <= 0:
            unknown[config.name] = "the weights leave no room for KV"
            continue
        engine = model.engine
        limits = ReplicaLimits(room, engine.max_num_seqs, engine.max_num_batched_tokens)
        groups = {
            kind.name: _group(facts, limits, model, kind, shapes.get((model.key, kind.name)), settings, check)
            for kind in fleet.classes
        }
        configs[config.name] = ConfigCapacity(
            config,
            facts,
            gpu.power_kw * config.tensor_parallel,
            gpu.price_per_hour * config.tensor_parallel,
            groups,
            settings.pool_replicas,
        )
    return CapacityTable(configs, unknown)


def _group(
    facts: ReplicaFacts,
    limits: ReplicaLimits,
    model: Model,
    kind: WorkloadClass,
    measured: Lengths | None,
    settings: PlannerSettings,
    check: CapacityCheck | None,
) -> GroupRate:
    lengths = measured or Lengths(
        float(kind.expected_input_tokens), float(kind.expected_output_tokens), settings.length_variation
    )
    if lengths.prompt + lengths.output > model.context_limit_tokens:
        return GroupRate(0.0, 0.0)
    shape = ClassShape(lengths.prompt, lengths.output, settings.hit_share, lengths.variation)
    if check is not None:
        case = CapacityCase(
            facts.times, limits, shape, kind.slo, settings.capacity.percentile, model.context_limit_tokens,
            model.engine.block_tokens,
        )  # fmt: skip
        checked = checked_group_rate(case, settings.capacity, check)
        if checked is not None:
            return checked
    return group_rate(facts.times, limits, shape, kind.slo, settings.capacity)


def _measured_shapes(demand: DemandTable, settings: PlannerSettings) -> dict[tuple[str, str], Lengths]:
    """Lengths by (model, class), weighted by requests, where they were measured.

    Tenants of one class differ: the variation is that of their mixture, by its second moment.
    """
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0] * 4)
    for row in demand.rows:
        if row.input_tokens is None or row.output_tokens is None or row.median <= 0:
            continue
        variation = settings.length_variation if row.input_variation is None else row.input_variation
        requests = row.median / row.output_tokens
        total = sums[row.model, row.workload_class]
        total[0] += requests
        total[1] += requests * row.input_tokens
        total[2] += requests * row.output_tokens
        total[3] += requests * row.input_tokens**2 * (1.0 + variation**2)
    return {key: _lengths(*total) for key, total in sums.items()}


def _lengths(requests: float, prompts: float, outputs: float, squares: float) -> Lengths:
    mean = prompts / requests
    variation = math.sqrt(max(squares / requests / mean**2 - 1.0, 0.0))
    return Lengths(max(mean, 1.0), max(outputs / requests, 1.0), variation)
