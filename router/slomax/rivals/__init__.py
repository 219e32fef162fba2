"""Flow control of other routers, behind the same protocol as SLOMax, for comparisons."""
