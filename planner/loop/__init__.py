"""The planner on a schedule: observe, plan, look at the plan, publish it, watch it, take it back."""
