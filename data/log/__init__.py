"""The decision and outcome log: Parquet, rotated, atomic, partitioned by time."""
