"""Placement rules of other projects, told in this project's words: baselines for FleetMind's placement.

Each takes a placement problem and returns replicas, shape (P,). They plan for the width of each commodity's
segments added up, as a demand that is certain: none of them knows quantiles. All keep the GPU limits; a rule
that knows none is cut by a rule stated with it.
"""
