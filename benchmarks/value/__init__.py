"""TokenFleet on four sites, whole and part by part, against the same fleet without it."""
