"""The planner's HTTP API."""
