"""Demand forecasts: rates of requests and tokens some steps ahead, as quantiles, from rates seen so far."""
