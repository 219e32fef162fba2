"""SLOMax on line: who is admitted, in which queue a request waits, and when it may go to an engine."""
