"""What engines tell of themselves: which there are, their metrics, their states, their health."""
