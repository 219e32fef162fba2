"""Optimisation: placement (FleetMind), capacity split (SLOMax), bounds and an independent checker."""
