"""Seeded synthetic traces, fitted to published statistics of real ones."""
