"""Stand-ins for inference engines that speak real HTTP; used by tests and benchmarks."""
