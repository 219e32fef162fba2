"""Tables and the one-file HTML report."""
