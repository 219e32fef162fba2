"""Benchmarks: each prints a table and gives rows that ``benchmarks.run`` collects."""
