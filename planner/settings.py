"""Settings of the planning step: what demand is worth, how far traffic may travel, how long to search."""

from __future__ import annotations

from dataclasses import dataclass, field

from data.errors import SettingError
from data.fleet.types import TIERS, Tier
from models.capacity import CapacitySettings
from solver.capacity_problem import CapacitySettings as SplitSettings
from solver.move_order_cp_sat import MoveOrderLimits
from solver.settings import PlacementSettings


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """How one planning step decides.

    Attributes:
        placement: Limits and gap of the placement solver.
        capacity: Percentile and queueing constants of the capacity table.
        split: Weights and limits of the capacity split.
        pool_replicas: Placement plans with the rate of a replica in a group of this many (1 to 64). 1 never
            over-promises; larger groups gain by pooling, which only the capacity split counts.
        period_s: Length of one planning period; start costs are spread over it (> 0).
        tier_values: Worth of a token of each tier: guaranteed, standard, best effort (each >= 0).
        rtt_share: A site is within reach if the round trip takes at most this share of the TTFT target (0 to 1).
        route_share: Worth that a token loses when its round trip takes the whole TTFT target (0 to 1).
        hit_share: Share of prompts expected in the prefix caches (0 to 0.95).
        length_variation: Standard deviation of request lengths over their mean (0 to 5).
        gpu_worth_share: Worth of a GPU left free, as a share of what the best one in use earns (0 to 1). The
            default only breaks ties towards smaller plans; at 0.2 a replica is not started for demand that comes
            with a chance below a fifth.
        prewarm_limit: Prewarmed copies of a model at a site, at most (0 to 8); 0 turns prewarming off.
        prewarm_gpu_share: Share of a replica's GPUs that one prewarmed copy blocks (0 to 1).
        burst_share, burst_value: Burst worth covering by prewarmed copies, as a share of the interactive demand in
            a zone, and worth of a covered token as a share of a served one (each 0 to 1).
        protected_models: Models whose capacity must survive the loss of any one site.
        protected_share: Share of their median demand that must survive (0 to 1).
        frozen_sites: Sites where nothing may move.
        strict_inventory: Refuse to plan if the GPUs under a running replica are unknown, instead of freezing it.
        merge_correlation: Correlation of forecast errors within a group of tenants (0 to 1).
        order: Limits of the search for the order of moves.
        parallel_loads: Replicas that may load at a time at one site (1 to 1000).
    """

    placement: PlacementSettings = field(default_factory=PlacementSettings)
    capacity: CapacitySettings = field(default_factory=CapacitySettings)
    split: SplitSettings = field(default_factory=SplitSettings)
    pool_replicas: int = 1
    period_s: float = 1800.0
    tier_values: tuple[float, float, float] = (4.0, 2.0, 1.0)
    rtt_share: float = 0.5
    route_share: float = 0.05
    hit_share: float = 0.0
    length_variation: float = 1.0
    gpu_worth_share: float = 1e-3
    prewarm_limit: int = 1
    prewarm_gpu_share: float = 0.25
    burst_share: float = 0.25
    burst_value: float = 0.1
    protected_models: tuple[str, ...] = ()
    protected_share: float = 0.5
    frozen_sites: tuple[str, ...] = ()
    strict_inventory: bool = False
    merge_correlation: float = 0.5
    order: MoveOrderLimits = field(default_factory=MoveOrderLimits)
    parallel_loads: int = 4

    def __post_init__(self) -> None:
        ranges = (
            ("pool_replicas", 1, 64),
            ("rtt_share", 0.0, 1.0),
            ("route_share", 0.0, 1.0),
            ("hit_share", 0.0, 0.95),
            ("length_variation", 0.0, 5.0),
            ("gpu_worth_share", 0.0, 1.0),
            ("prewarm_limit", 0, 8),
            ("prewarm_gpu_share", 0.0, 1.0),
            ("burst_share", 0.0, 1.0),
            ("burst_value", 0.0, 1.0),
            ("protected_share", 0.0, 1.0),
            ("merge_correlation", 0.0, 1.0),
            ("parallel_loads", 1, 1000),
        )
        for name, low, high in ranges:
            value = getattr(self, name)
            if not low <= value <= high:
                raise SettingError("setting out of range", field=name, value=value, expected=f"{low} to {high}")
        if not self.period_s > 0:
            raise SettingError("setting out of range", field="period_s", value=self.period_s, expected="above 0")
        if len(self.tier_values) != len(TIERS) or any(v < 0 for v in self.tier_values):
            expected = f"{len(TIERS)} numbers, 0 or more"
            raise SettingError(
                "setting out of range", field="tier_values", value=self.tier_values, expected=expected
            )

    def tier_value(self, tier: Tier) -> float:
        """Worth of a token of that tier."""
        return self.tier_values[TIERS.index(tier)]
