"""Scalers side by side inside Dynamo's own offline replay: equal engines, requests, router and targets."""
