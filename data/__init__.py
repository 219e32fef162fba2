"""The shared vocabulary: types, the fleet file, traces, the catalog, the log. Imports nothing else of ours."""
