"""Latency models: the closed-form prior, learned residuals, their store and what a replica can carry."""
