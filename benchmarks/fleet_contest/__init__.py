"""The contest of placement rules on eleven days of demand: fleet, demand, forecasts, arms, judges."""
