"""An upper bound on the Goodput that any routing policy can reach on a scenario; see docs/bound.md."""

from planner.bound.goodput_bound import GoodputBound, goodput_bound, scenario_bound

__all__ = ["GoodputBound", "goodput_bound", "scenario_bound"]
