"""Public latency logs as training samples: one file for each source, ``registry`` for all of them."""
