"""What an output token is worth: a written policy.

Worth = tier value × tenant weight × class weight × model value. The model value is 1 / (output tokens/s per unit
of GPU price at the model's best configuration), scaled so that its median is 1: without it a plan for raw tokens
starves large models, because their tokens cost more GPU time. A model's own ``token_value`` takes its place.
"""

from __future__ import annotations

import math
from statistics import median

from data.fleet.types import Fleet, Tenant, WorkloadClass
from planner.capacity_table import CapacityTable
from planner.settings import PlannerSettings


def model_values(fleet: Fleet, table: CapacityTable) -> dict[str, float]:
    """Value of a token of each model, by model key; 1 for a model that no configuration can serve."""
    best = {model.key: _best_rate(model.key, fleet, table) for model in fleet.models}
    costs = {key: 1.0 / rate for key, rate in best.items() if rate > 0}
    middle = median(costs.values()) if costs else 1.0
    given = {model.key: model.token_value for model in fleet.models if model.token_value is not None}
    return {model.key: given.get(model.key, costs.get(model.key, middle) / middle) for model in fleet.models}


def _best_rate(model: str, fleet: Fleet, table: CapacityTable) -> float:
    """Best output tokens/s per unit of GPU price, as the geometric mean over the classes it can serve."""
    best = 0.0
    for capacity in table.of_model(model):
        rates = [rate for kind in fleet.classes if (rate := capacity.rate(kind.name)) > 0]
        if rates and capacity.price_per_hour > 0:
            mean = math.exp(sum(map(math.log, rates)) / len(rates))
            best = max(best, mean / capacity.price_per_hour)
    return best


def token_worth(tenant: Tenant, kind: WorkloadClass, model_value: float, settings: PlannerSettings) -> float:
    """Worth of one output token of that tenant, class and model."""
    return settings.tier_value(tenant.tier) * tenant.weight * kind.weight * model_value
