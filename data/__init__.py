"""The shared vocabulary: types, units, the fleet file, traces, the catalog, the log. Imports nothing else of ours."""
