"""Settings of the placement solver."""

from __future__ import annotations

from dataclasses import dataclass

from data.errors import SettingError


@dataclass(frozen=True, slots=True)
class PlacementSettings:
    """How long and how closely to search.

    Attributes:
        time_limit_s: Wall clock of one solve, bound included (> 0).
        mip_gap: Stop when the bound is this close, as a share of the bound on the value (0 to 0.5).
        hysteresis: Keep the running replicas unless a new plan gains at least this share of their value (0 to
            0.5); should be above ``mip_gap``, or noise of the search moves replicas.
        deterministic: Audit mode: stop by ``node_limit`` and gap instead of by the clock. The clock stays as a
            watchdog at ten times the limit.
        node_limit: Branch-and-bound nodes in audit mode (> 0).
        seed: Seed of the solver and of the block search (>= 0).
        direct_integers: Up to so many whole columns (replicas and copies) one branch and bound plans everything;
            above, prices, construction and block search (>= 0).
        block_size: Models that a block of the search frees (>= 1).
        block_s: Seconds of one block, and of one model in pricing and construction (> 0).
        block_tries: Blocks of each search in audit mode (> 0).
        block_nodes: Branch-and-bound nodes of each of these small models in audit mode (> 0).
        processes: Solver processes for the pricing pass and the rounds of the search (1 to 64).
    """

    time_limit_s: float = 20.0
    mip_gap: float = 0.01
    hysteresis: float = 0.015
    deterministic: bool = False
    node_limit: int = 20_000
    seed: int = 0
    direct_integers: int = 1_000
    block_size: int = 4
    block_s: float = 1.0
    block_tries: int = 200
    block_nodes: int = 50
    processes: int = 1

    def __post_init__(self) -> None:
        checks = (
            ("time_limit_s", self.time_limit_s > 0, "seconds above 0"),
            ("mip_gap", 0 <= self.mip_gap <= 0.5, "a share from 0 to 0.5"),
            ("hysteresis", 0 <= self.hysteresis <= 0.5, "a share from 0 to 0.5"),
            ("node_limit", self.node_limit > 0, "above 0"),
            ("seed", 0 <= self.seed < 2**31, "a whole number from 0 to 2^31 - 1"),
            ("direct_integers", self.direct_integers >= 0, "0 or more"),
            ("block_size", self.block_size >= 1, "1 or more"),
            ("block_s", self.block_s > 0, "seconds above 0"),
            ("block_tries", self.block_tries > 0, "above 0"),
            ("block_nodes", self.block_nodes > 0, "above 0"),
            ("processes", 1 <= self.processes <= 64, "1 to 64"),
        )
        for name, ok, expected in checks:
            if not ok:
                raise SettingError(
                    "setting out of range", field=name, value=getattr(self, name), expected=expected
                )
