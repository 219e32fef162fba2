"""The whole loop on the built-in four-site fleet: trace, log, train, plan, route, compare, report."""
