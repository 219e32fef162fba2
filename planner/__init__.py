"""The planning step, the simulator, the reports and the command line."""
